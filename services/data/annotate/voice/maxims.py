"""Old sayings that a coach drops where they fit. They claim nothing about the board."""

from services.data.annotate.facts import Fact, files, kings, material, mates, pawns, pieces, tactics

MAXIMS: dict[type[Fact], tuple[str, ...]] = {
    tactics.Pin: ("A pinned piece is a poor defender.", "Pins are there to be used."),
    tactics.Loose: ("Loose pieces drop off.", "Loose pieces invite tactics."),
    tactics.Overloaded: ("Nobody can be in two places at once.",),
    tactics.Discovery: ("Always look at what stands behind.",),
    pawns.Passed: (
        "Passed pawns must be pushed.",
        "A passed pawn is a criminal to be kept under lock and key.",
    ),
    pawns.Isolated: ("Weak pawns are weak for the whole game.",),
    files.OpenFile: ("Rooks belong on open files.",),
    files.Seventh: ("Rooks love the seventh rank.",),
    kings.Central: ("Castle early is good advice.",),
    kings.Active: ("In the endgame the king is a fighting piece.",),
    kings.BackRank: ("Keep an eye on the back rank.",),
    material.BishopPair: ("Two bishops like open positions.",),
    material.OppositeBishops: ("Such bishops never meet.",),
    pieces.AtHome: ("Development first.",),
    pieces.Outpost: ("A knight on an outpost is worth a lot.",),
    mates.MateThreat: ("Safety first.",),
}
"""By the fact that brings them to mind."""
