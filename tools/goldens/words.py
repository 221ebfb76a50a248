"""The text that the tiny tokenizers are trained on, and the captions that they are tried with."""

SUBJECTS = """cat dog bird horse fish rabbit fox owl whale bear tiger robot dragon child woman man
painter sailor wizard dancer tree flower forest garden mountain river lake ocean island desert city
street house castle bridge tower window door table chair lamp clock mirror book letter guitar piano
train car boat ship bicycle rocket balloon circle square triangle star moon sun cloud storm rain
snow fire shadow light dream""".split()

LOOKS = """red green blue yellow orange purple black white golden silver small tiny large huge tall
round soft bright dark quiet loud old young ancient modern wooden stone glass metal paper fluffy
sleepy happy sad angry curious lonely frozen burning floating broken hidden""".split()

ACTIONS = """walks runs jumps sleeps sits stands flies swims moves turns falls rises glows melts
looks reads sings dances waits dreams shines drifts rolls""".split()

PLACES = """in on under over behind beside near above below through across around inside outside
into from with without toward against""".split()

STYLES = """photo painting drawing sketch watercolor portrait landscape illustration render poster
cinematic detailed realistic abstract minimal vivid blurry sharp studio lighting sunset morning
night winter summer autumn spring""".split()


def sentences():
    """A fixed set of simple English captions that uses every word above several times."""
    lines = []
    for index in range(600):
        subject = SUBJECTS[index % len(SUBJECTS)]
        look = LOOKS[(7 * index) % len(LOOKS)]
        action = ACTIONS[(5 * index) % len(ACTIONS)]
        place = PLACES[(3 * index) % len(PLACES)]
        other = SUBJECTS[(11 * index + 3) % len(SUBJECTS)]
        style = STYLES[(13 * index) % len(STYLES)]
        lines.append(f"a {look} {subject} {action} {place} the {other}, {style}")
        if index % 4 == 0:
            lines.append(f"An {style} of {index % 97} {look} {subject}s & the {other}'s {style}.")
    return lines


CAPTIONS = [
    "",
    " ",
    "   \t \n ",
    "a red circle moves left",
    "A RED CIRCLE Moves Left",
    "a  red   circle  with    spaces",
    "  leading and trailing  ",
    "a\tred\ncircle\r\nmoves",
    "cat",
    "a",
    "?",
    "a sleepy fox, under the moon; studio lighting!",
    "the dog's (small) \"house\" -- 50% off: $3.99 & more...",
    "snowy-mountain/river_lake #sunset @night",
    "café naïve façade",
    "cafe\u0301 with a combining accent",
    "ﬁne ﬂower ligatures",
    "ｆｕｌｌ　ｗｉｄｔｈ ＡＢＣ１２３",
    "½ of ² and ™ and ①",
    "красная кошка",
    "一只红色的猫 in the garden",
    "a 🐈 sleeps 🌙✨ on the boat",
    "zero\u200bwidth and soft\u00adhyphen",
    "non\u00a0breaking\u2003em\u3000ideographic spaces",
    "control\u0007bell and \ufeffbyte order mark",
    "a literal ▁ lower block ▁▁ twice",
    "<pad> and </s> and <extra_id_0> and <unk> in text",
    "e\u0301\u0301 stacked, Å Ω ﷺ",
    "xylophone quizzically jinxed zebras",
    "a photo of " + "a very " * 70 + "long caption",
]
