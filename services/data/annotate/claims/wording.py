"""Joints, openers and sentences without a claim: what the reader of claims passes over.

A sentence in `TALK` says nothing about the board. It is short and closed: whatever else a text
contains must be read as claims or it is reported.
"""

import re

from services.data.annotate.claims.sentence import Wording

_OPENERS = (
    "so|still|however|but|and|also|besides|moreover|meanwhile|here|now|then|again|yet|first|next|finally|"
    "secondly|first of all|"
    "on top of that|what is more|on the other hand|against that|then again|in return|at the same time|"
    "of course|indeed|clearly|in fact|after all|to sum up|in short|for now|at the moment|right now|"
    "as it stands|true|granted|"
    "to begin with|to start with|for a start|for one thing|for another|more to the point|more important|"
    "above all|most of all|in addition|as for the rest|beyond that|that said|even so|all the same|"
    "nevertheless|"
    "instead|by contrast|in contrast|otherwise|apart from that|"
    "unfortunately|luckily|fortunately|naturally|objectively|"
    "since|because|as|although|though|even though|while|whereas|when|where|once|given that|now that|"
    "the point is that|the problem is that|the trouble is that|the snag is that|the drawback is that|"
    "the catch is that|the fact is that|"
    "the downside is that|the drawback|the catch|the snag|the downside|the point|the problem|the trouble|"
    "«s\\d+» (?:also )?(?:see|note|notice) that|the first thing to notice is that|"
    "what strikes «s\\d+» is that|what stands out is that|note that|notice that|"
    "«i\\d+» helps to see that|«i\\d+» matters that|"
    "and so|and then|and here|and now|and there|and yet|but then|but now|but here|which means that|"
    "this means that|that means|so that|"
    "in (?:the|that|this) (?:end|case|line|position)|at the end|at the end of it|at the end of the line|"
    "by then|there|in the final position|"
    "the result|the upshot|conclusion|verdict|the verdict|result|the good news|the bad news|"
    "worse|better|even better|even worse|best of all|one plus|one minus|a plus|a minus|on the plus side|"
    "on the minus side|"
    "as for|not only that|not just that|a detail|"
    "not bad|fine|good|well|yes|no|right|sure"
)
_ADVERBS = re.compile(
    r"^(?:(?:also|now|still|then|already|even|simply|really|at least|clearly|just|both|all|certainly|"
    r"indeed|again|therefore|only|"
    r"merely|actually|does|do|did|will|would|can|could|might|immediately|at once|first) )+"
)
_REFERENCE = (
    "it|this|that|which|this move|that move|the move|the capture|the check|the advance|the push|the exchange|"
    "the retreat|the recapture|this capture|castling|the pawn move|the king move"
)
_WH = "which|who|where"

WORDING = Wording(
    openers=re.compile(rf"^(?:{_OPENERS})[,:]? "),
    closers=re.compile(
        r",? (?:too|as well|here|now|there|then|already|at the moment|for now|for the moment|again|"
        r"instead|either|anyway|"
        r"after all|in return|at once|as a result|at the end|in the end|to boot|on top|next|first|though|"
        r"however|"
        r"in this position|in the final position|by then|at the end of it|so far|of course|indeed|"
        r"with it|from there|on this square|on that square)$"
    ),
    joints=tuple(
        re.compile(pattern)
        for pattern in (
            r"; ",
            r": ",
            r", (?:but|while|whereas|although|though|yet|so|so that|and so|because|since|as) ",
            r", (?:and|or) ",
            r", (?:when|after which|whereupon|and then|and now|leaving|with) ",
            r", to ",
            r", ",
            r" (?:but|while|whereas|although|though|because|since|as|so) ",
            r" and ",
            r" when ",
            r" with ",
            r", (?:which|who|where) ",
        )
    ),
    adverbs=_ADVERBS,
    rewrites=(
        (re.compile(r"^(«[ml]\d+»): "), r"\1 "),
        (re.compile(r"^(«[ml]\d+»), (?=\w+ing )"), r"\1 "),
        (
            re.compile(
                r"^(attacked|undefended|defended|pinned|isolated|doubled|passed|hanging|under attack) "
            ),
            r"is \1 ",
        ),
        (re.compile(r"^((?:still )?(?:unclaimed|unoccupied|up for grabs))$"), r"is \1"),
        (re.compile(r"^((?:only|just) \w+ (?:steps?|moves?|squares?) )"), r"is \1"),
        (
            re.compile(
                r"^(attacked|undefended|defended|pinned|isolated|doubled|passed|hanging|under attack)$"
            ),
            r"is \1",
        ),
        (re.compile(r"^with («[mlq]\d+»),? («s\d+») "), r"\2 could play \1, \1 "),
        (re.compile(r"^(«l\d+»),? ~?(?:leaves|leaving|leave) («s\d+») with "), r"\1, \2 has "),
        (re.compile(r"^(«l\d+»),? (?:leaves|leaving|leave) («s\d+») "), r"\1, \2 is "),
        (re.compile(r"^(?:leaving|and leaves|leaves|leave) («s\d+») with "), r"\1 has "),
        (re.compile(r"^(?:leaving|and leaves|leaves|leave) («s\d+») "), r"\1 is "),
        (re.compile(r"^with («s\d+») "), r"\1 is "),
        (re.compile(r"^with («[pg]\d+») "), r"\1 is "),
        (
            re.compile(
                r"^(?:thanks to|because of|given|in view of|despite|for all) («s\d+») (?:having|being) "
            ),
            r"\1 has ",
        ),
        (re.compile(r"^(?:there is|there's|here is|we have|i have) («[pg]\d+»), which "), r"\1 "),
    ),
    introductions=(
        ("line", re.compile(r"^«l\d+»,? ")),
        (
            "move",
            re.compile(
                r"^(?:(?:the )?(?:idea|point|purpose|aim|merit|strength) (?:of|behind) )?«[mlq]\d+»,? "
                r"(?:~?(?:is|was) (?:to|that it) |(?:is|was) meant to |(?:aims|serves|wants|helps|"
                r"is designed|is there) to )?"
            ),
        ),
        (
            "move",
            re.compile(rf"^(?:«i\d+»|this|that|which|{_REFERENCE}) (?:(?:aims|serves|helps|wants) to )?"),
        ),
        ("piece", re.compile(r"^«[p]\d+»,? ")),
        ("piece", re.compile(r"^(?:«i\d+»|which|that) ")),
        ("group", re.compile(r"^«g\d+»,? ")),
        ("group", re.compile(r"^(?:which|they|these|those) ")),
        ("side", re.compile(r"^«s\d+»,? ")),
        ("side", re.compile(r"^(?:who|which) ")),
        ("line", re.compile(r"^(?:which|this|that|it|«i\d+») ")),
        ("file", re.compile(r"^«f\d+»,? ")),
        ("file", re.compile(r"^(?:which) ")),
    ),
)

TALK = frozenset(
    {
        "candidates",
        "moves",
        "threat",
        "what is the threat",
        "what does the other side want",
        "is there a threat",
        "what would happen if we did nothing",
        "what am i up against",
        "what happens if i do nothing",
        "what can be done",
        "so what are our options",
        "now for the moves",
        "let us look at the moves",
        "so, moves",
        "what are my options",
        "now the moves",
        "let me look at concrete moves",
        "not good enough",
        "rejected",
        "no",
        "so no",
        "off the list",
        "not this one",
        "that rules it out",
        "that will not do",
        "so that is out",
        "we can cross it off",
        "that is not it",
        "i drop it",
        "a pinned piece is a poor defender",
        "pins are there to be used",
        "loose pieces drop off",
        "loose pieces invite tactics",
        "nobody can be in two places at once",
        "always look at what stands behind",
        "passed pawns must be pushed",
        "a passed pawn is a criminal to be kept under lock and key",
        "weak pawns are weak for the whole game",
        "rooks belong on open files",
        "rooks love the seventh rank",
        "castle early is good advice",
        "in the endgame the king is a fighting piece",
        "keep an eye on the back rank",
        "two bishops like open positions",
        "such bishops never meet",
        "development first",
        "a knight on an outpost is worth a lot",
        "safety first",
    }
)
"""Sentences that say nothing about the board."""
