"""The grammar that the modules of this package fill."""

from services.data.annotate.claims.grammar import Grammar

GRAMMAR = Grammar()
says = GRAMMAR.says
