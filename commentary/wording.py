"""Joints, openers and sentences without a claim: what the reader passes over, in lexed, lower-cased text."""

import re
from collections.abc import Iterable, Mapping, Sequence

from commentary.slots import Subject
from commentary.token import lex

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
    "since|because|as|although|though|even though|while|whereas|where|given that|now that|"
    "the point is that|the problem is that|the trouble is that|the snag is that|the drawback is that|"
    "the catch is that|the fact is that|"
    "the downside is that|the drawback|the catch|the snag|the downside|the point|the problem|the trouble|"
    "similar to «[mlq]\\d+»|«s\\d+» (?:can |also )?(?:see|note|notice|observe|realise|realize)(?: that)?|"
    "the first thing to notice is that|"
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
    "not bad|fine|good|well|yes|no|right|sure|"
    "therefore|thus|hence|additionally|furthermore|similarly|notably|specifically|importantly|currently|"
    "firstly|thirdly|lastly|overall|alternatively|in particular|in summary|in conclusion|at first glance|"
    "(?:upon|on) closer inspection|looking at (?:the|«o\\d+») (?:board|position)|as a result|"
    "(?:king |piece )?(?:safety|activity|development|placement)|material(?: balance| count)?|pawn structure|"
    "legality(?: check)?|(?:current )?position|threats?|castling(?: rights)?|control of the centre"
)
_REFERENCE = (
    "it|this|that|which|this move|that move|the move|the capture|the check|the advance|the push|the exchange|"
    "the retreat|the recapture|this capture|castling|the pawn move|the king move"
)

_ADVERBS = (
    "also|now|still|then|already|even|simply|really|at least|clearly|just|both|all|certainly|indeed|again|"
    "therefore|only|merely|actually|does|do|did|immediately|at once|first"
)
ADVERBS = re.compile(rf"^(?:(?:{_ADVERBS}) )+")
ADVERBS_OF_MOVES = re.compile(rf"^(?:(?:{_ADVERBS}|will|can) )+")
"""A move will or can attack what it attacks. What a side, a piece or a file will be is not what it is."""

OPENERS = re.compile(rf"^(?:{_OPENERS})[,:]? ")

CLOSERS = re.compile(
    r",? (?:too|as well|here|now|there|then|already|at the moment|for now|for the moment|again|"
    r"instead|either|anyway|"
    r"after all|in return|at once|as a result|at the end|in the end|to boot|on top|next|first|though|"
    r"however|"
    r"in this position|in the final position|by then|at the end of it|so far|of course|indeed|"
    r"with it|from there|on this square|on that square|"
    r"(?:and|along with) (?:(?:some|several|other|various|more) )+(?:minor |remaining )?(?:pieces|pawns)"
    r"(?: and (?:minor )?(?:pieces|pawns))?)$"
)

JOINTS = tuple(
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
        r"(?<!mate) with ",
        r", (?:which|who|where) ",
    )
)
"""In the order in which sentences are split at them."""

STOPS = re.compile(
    r"; (?!if\b)|,? (?:but|while|whereas|although|though|because|since|and|which|making|putting|giving|"
    r"leaving|allowing|indicating|suggesting) (?!only\b|not\b|if\b)"
)
"""Where a clause may end that is asserted whatever follows."""

HOW = (
    "((very|quite|somewhat|relatively|fairly|rather|slightly|also|still|currently|already|now|well|safely|"
    "actively|nicely|firmly|directly|indirectly|effectively|immediately|clearly|simultaneously) )?"
)
SOME = (
    "(the |some |several |a few |many )?(key |important |central |critical |nearby |vital )?(squares )?"
    "((like|such as|including) )?"
)
"""Words of templates that change nothing: of degree, and before a list of squares."""

_CONJUNCTIONS = "and|but|while|whereas|although|though|so|because|since|as|which|making|leaving|with|due to"
BREAKS = re.compile(
    rf"[:;,] (?:(?:{_CONJUNCTIONS}) )?| [-\u2013\u2014](?!>) ?| ?[()] ?| (?:{_CONJUNCTIONS}) "
)
"""What stands between the clauses of a sentence."""

SAME_SUBJECT = re.compile(r"[:;,] (?:(?:and|but) )?| [-\u2013\u2014] ?| (?:and|but) |[()]| ?[()] ?")
"""A break after which the subject may still be that of the clause before."""

CONDITIONS = re.compile(
    r"\b(?:if|unless|as long as|so long as|in case|whether|suppose|supposing|assum\w+|provided|imagin\w+|"
    r"hypothetical\w*|were)\b|\?"
)
"""Where one is, nothing that a sentence names is asserted."""

DOUBTS = re.compile(
    r"\b(?:would|could|might|may|should|can|cannot|will|when|once|after|until|before|not|n't|no|nor|never|"
    r"neither|without|than|instead|potential\w*|possib\w*|perhaps|maybe|likely|probably|plan\w*|aim\w*|idea|"
    r"hop(?:e|es|ing)|want\w*|try\w*|going|allow\w*|prevent\w*|avoid\w*|stop\w*|only|almost|nearly|seems?|"
    r"appears?|was|had|previous\w*|earlier|eventual\w*|later|soon|next|similar\w*|suggest\w*|prepar\w*|"
    r"(?:feels?|looks?|sounds?) like|help\w*|consider\w*|rule\w*|typical\w*|usual\w*|general\w*|followed|"
    r"threat\w*|so that|in order)\b"
)
"""Words before a clause, or in it, with which it need not be asserted of this position."""

WOULD = re.compile(
    r"\b(?:would|could|might|may|should|dream\w*|ideal\w*|then)\b|"
    r"\b(?:from|via) «q\d+»(?! (?:to|onto|on|->))|\b(?:by|via|through|after) «[ml]\d+»"
)
"""Words with which a clause, wherever they are in it, names what need not be there: "attacks it from d5"."""

SETTING = re.compile(
    r"^(?:and |but |then )?(?:(?:from|via|on|at|by) (?:[a-z]+ )*«[qml]\d+»|with «p\d+»)[^,]*, "
)
"""The beginning of a sentence that says where something would have to be."""

WALKS = re.compile(
    r"«[pg]\d+» (?:also |then |now |just |simply )?"
    r"(?:captures?|takes?|recaptures?|moves?|goes|go|jumps?|hops?|steps?|leaves?|retreats?|advances?|heads?|comes?|trades?|exchanges?|eats?)\b"
)
"""Words with which a piece stands elsewhere in what follows."""

ONE_OF_SEVERAL = re.compile(r"(?:^|[:;,.] |\b(?:and|but|while|that|so) )«[ospg]\d+» and $")
"""What stands before a clause whose subject is only one of those of which it speaks."""

REJECTED = re.compile(
    r"\b(?:false|untrue|myth|lie|den(?:y|ies)|doubts?|mistake\w*|wrong\w*|tempting to|thought|believed|"
    r"incorrect\w*|invalid|hardly|barely|fails?|"
    r"(?:some|one|people|many) (?:say|claim|think|argue)s?)\b|(?:«i\d+»|\bthat) (?:does|is) not\b"
)
"""Where one is, what the sentence says may be what it denies."""

DENIALS = re.compile(
    r"\b(?:no|not|n't|never|neither|nor|without|lack\w*|absen\w+|miss\w*|wish\w*|nothing|any|other than|than|"
    r"was|were|had|used to|instead of|rather than|illegal|invalid|incorrect\w*|wrong\w*)\b"
)
"""Words that deny what is named behind them."""

REFUSALS = re.compile(
    r"\b(?:illegal|invalid|impossible|incorrect|inapplicable|blocked|(?:not|no|n't|cannot)(?: \w+){0,2} "
    r"(?:legal|valid|possible|feasible|viable|allowed|permitted|permissible|applicable|available|move|reach))\b"
)
"""Words with which a sentence says that a move that it names cannot be played."""

ABSENT = re.compile(
    r" (?:(?:is|are|does|do|was|were) not (?:there|here|present|exist|visible|on )|is missing|no longer )"
)
"""Words after a name that say that nothing stands there."""

PAST = re.compile(
    r"\b(?:(?:has|have|had) (?!an?\b)[a-z]+|was|were|played|already|previous\w*|earlier|last move)\b"
)
"""Words before a move that was played."""

_PLACING = (
    "plac|put|post|station|establish|get|leav|bring|keep|hav|develop|want|need|creat|gain|becom|mov|transfer|"
    "reposition|relocat|rout|land|end|promot|advanc|push|play|retreat|follow|reply|respon[ds]|answer|plant|"
    "maneuver|manoeuvr|prepar|threaten|target|aim"
)
_DETERMINERS = r"«o\d+»|the|an?|my|our|their|another|one|black|white|that|this|some|both|more|second|other"
GOALS = re.compile(
    rf"\b(?:{_PLACING})(?:s|es|e|ed|ing|ting|ping)?(?: up| down| back)? "
    rf"(?:(?:{_DETERMINERS}) ){{0,3}}(?:«p\d+» and )?$|"
    r"\b(?:to|onto|via|towards?|into|with) $"
)
"""What names a goal: a piece that is placed there stands there only afterwards."""

Rewrites = tuple[tuple[re.Pattern[str], str], ...]


def _compiled(rewrites: Iterable[tuple[str, str]]) -> Rewrites:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rewrites)


REWRITES = _compiled(
    (
        (r"^(?:for|considering|examining|evaluating|assessing) («[mlq]\d+»)(?=[:,])", r"\1"),
        (r"^(«[mlq]\d+»)(?::| [-\u2013\u2014])? (?:this|it|which) ", r"\1 "),
        (r"^(«[mlq]\d+»)(?::| [-\u2013\u2014]) ", r"\1 "),
        (r"^(«[ml]\d+»), (?=\w+ing )", r"\1 "),
        (
            # Not "defended once": how often goes with how often it is attacked.
            r"^(attacked|undefended|defended|pinned|isolated|doubled|passed|hanging|under attack)(?= |$)"
            r"(?! (?:only )?(?:once|twice|[a-z]+ times))",
            r"is \1",
        ),
        (r"^((?:still )?(?:unclaimed|unoccupied|up for grabs))$", r"is \1"),
        (r"^((?:only|just) \w+ (?:steps?|moves?|squares?) )", r"is \1"),
        (r"^with («[mlq]\d+»),? («s\d+») ", r"\2 could play \1, \1 "),
        (r"^(«l\d+»),? ~?(?:leaves|leaving|leave) («s\d+») with ", r"\1, \2 has "),
        (r"^(«l\d+»),? (?:leaves|leaving|leave) («s\d+») ", r"\1, \2 is "),
        (r"^(?:leaving|and leaves|leaves|leave) («s\d+») with ", r"\1 has "),
        (r"^(?:leaving|and leaves|leaves|leave) («s\d+») ", r"\1 is "),
        (r"^with («[spg]\d+») ", r"\1 is "),
        (
            r"^(?:thanks to|because of|given|in view of|despite|for all) («s\d+») (?:having|being) ",
            r"\1 has ",
        ),
        (r"^(?:there is|there's|here is|we have|i have) («[pg]\d+»), which ", r"\1 "),
    )
)
"""Shortened clauses in full."""

HEDGES = _compiled(
    (
        (r"\b(?:seems?|appears?)(?: to be)? ", "is "),
        (
            r"\b(is|are|has|have) (?:currently|also|already|still|now|clearly|indeed|actually|directly|"
            r"effectively|both|therefore) ",
            r"\1 ",
        ),
        (r" with (check|checkmate|mate)$", r" and gives \1"),
    )
)
"""Words that a claim can do without, tried when nothing else fits."""

INTRODUCTIONS: tuple[tuple[Subject, re.Pattern[str]], ...] = (
    (
        "move",
        re.compile(
            r"^(?:(?:the )?(?:idea|point|purpose|aim|merit|strength) (?:of|behind) )?«[mlq]\d+»,? "
            r"(?:~?(?:is|was) (?:to|that it) |(?:is|was) meant to |(?:aims|serves|wants|helps|"
            r"is designed|is there) to )?"
        ),
    ),
    ("move", re.compile(rf"^(?:«i\d+»|this|that|which|{_REFERENCE}) (?:(?:aims|serves|helps|wants) to )?")),
    ("line", re.compile(r"^«l\d+»,? ")),
    ("piece", re.compile(r"^«[p]\d+»,? ")),
    ("piece", re.compile(r"^(?:«i\d+»|which|that) ")),
    ("pieces", re.compile(r"^«g\d+»,? ")),
    ("pieces", re.compile(r"^(?:which|they|these|those) ")),
    ("side", re.compile(r"^«s\d+»,? ")),
    ("side", re.compile(r"^(?:who|which) ")),
    ("line", re.compile(r"^(?:which|this|that|it|«i\d+») ")),
    ("file", re.compile(r"^«f\d+»,? ")),
    ("file", re.compile(r"^(?:which) ")),
)
"""Ways to name a subject, by its kind."""

TALK: Mapping[str, Sequence[str]] = {
    "threat?": (
        "notebook|threat?",
        "notebook,calculator|what is the threat?",
        "coach|what does the other side want?",
        "coach|is there a threat?",
        "coach|what would happen if we did nothing?",
        "calculator|what am I up against?",
        "calculator|what happens if I do nothing?",
    ),
    "moves": (
        "notebook|moves",
        "notebook|candidates",
        "annotator|what can be done?",
        "coach|so what are our options?",
        "coach|now for the moves",
        "coach|let us look at the moves",
        "calculator|so, moves",
        "calculator|what are my options?",
        "calculator|now the moves",
        "calculator|let me look at concrete moves",
    ),
    "dropped": (
        "not good enough",
        "notebook|rejected",
        "notebook,calculator|no",
        "notebook|off the list",
        "notebook,coach,calculator|not this one",
        "notebook,annotator,coach|that rules it out",
        "annotator,calculator|that will not do",
        "annotator,coach|so that is out",
        "coach|we can cross it off",
        "coach,calculator|that is not it",
        "calculator|I drop it",
        "calculator|so no",
    ),
    "pin": ("a pinned piece is a poor defender", "pins are there to be used"),
    "loose piece": ("loose pieces drop off", "loose pieces invite tactics"),
    "overloaded piece": ("nobody can be in two places at once",),
    "hidden attack": ("always look at what stands behind",),
    "passed pawn": (
        "passed pawns must be pushed",
        "a passed pawn is a criminal to be kept under lock and key",
    ),
    "isolated pawn": ("weak pawns are weak for the whole game",),
    "held open file": ("rooks belong on open files",),
    "rook on the seventh": ("rooks love the seventh rank",),
    "king in the centre": ("castle early is good advice",),
    "active king": ("in the endgame the king is a fighting piece",),
    "weak back rank": ("keep an eye on the back rank",),
    "bishop pair": ("two bishops like open positions",),
    "opposite bishops": ("such bishops never meet",),
    "undeveloped pieces": ("development first",),
    "outpost": ("a knight on an outpost is worth a lot",),
    "threat of mate": ("safety first",),
}
"""Sentences that say nothing about the board: questions, verdicts in a word, a coach's sayings by concept."""

_ANALYSE = (
    "(?:anal[yi][sz]|examin|assess|evaluat|consider|look(?: closely)? (?:at|into|for)|check|review|think"
    "|go(?: through| over)?|begin|start|explor|summari[sz]|understand|verif|simplif|enumerat|list|identif"
    "|focus|compar|narrow|determin|proceed|refin|revisit|reconsider|address|break|conclud|clarif)"
    "(?:e|y|ying|ing)?"
)
_VERBS = "(?:is|are|was|has|have|had|can|will|wins?|loses?|stands?)"
_UNSIDED = rf"(?:(?! {_VERBS} )(?:[^:;«]|«[os]\d+»))*"
_PLAINLY = (
    rf"(?:(?:let (?:us|me|«s\d+»)|«s\d+» (?:will|should|need to|needs to|can|must))"
    rf" (?:first |now |then |also |carefully |quickly |briefly )*{_ANALYSE}\b{_UNSIDED})",
    rf"to (?:determine|find|decide(?: on)?|choose|identify|{_ANALYSE}) (?:the|«o\d+») {_UNSIDED}",
    r"(?:after|upon|by|on) (?:closer |detailed |careful |further )?"
    r"(?:inspection|examination|review|reflection|analysis)",
    rf"(?:(?:after|upon|by|to) )?{_ANALYSE}\b{_UNSIDED}",
    # A heading has no verb that could claim anything.
    rf"(?:(?!{_VERBS} )[a-z'-]+ |«o\d+» ){{0,5}}[a-z'-]+:",
    r"looking (?:closely|at the board|again)",
    r"given (?:these|those|this|that|the) (?:points?|options|moves|choices|considerations|factors|facts)",
    r"(?:the )?(?:current |given )?(?:position|state|state of the board|board(?: state)?) is(?: described)?",
    r"the first step is to .*",
    r"(?:amongst |given )?(?:the )?(?:given|available|possible)? ?(?:moves|options|choices)(?: analysis)?",
    r"(?:«o\d+» |[a-z]+ )?(?:(?:piece )?development|safety|structure|activity|count|balance|position)",
    rf"the (?:task|goal) is to (?:determine|find|decide|identify|choose) (?:on )?(?:the|«o\d+») {_UNSIDED}",
    rf"«s\d+» (?:can )?observe (?:the|«o\d+») {_UNSIDED}",
    r"«s\d+» (?:threats|opportunities|pieces|pieces development|development|king safety)",
    r"(?:therefore|hence|thus|however|yes|no|ah|ah, yes|wait|hmm|okay|calculating|"
    r"providing (?:final )?response accordingly|pros|cons|conclusion|for instance|here is why)",
    r"(?:still, |and )?(?:«i\d+»|this|which) keeps? (?:«o\d+» )?options open",
)
IN_PASSING = re.compile(
    rf"(?:[a-z ]{{1,30}}: )?(?:(?:so|now|next|first|okay|well|then|finally|hence|thus),? )?"
    rf"(?:{'|'.join(_PLAINLY)})(?:, (?:{_PLAINLY[0]}))?,?"
)
"""What models say without a claim, in lexed text; none of it names a piece, a square, a file or a move."""

SAYS_NOTHING = frozenset(
    lex(talk.split("|")[-1]).text.strip(" .!?;:") for sentences in TALK.values() for talk in sentences
)
