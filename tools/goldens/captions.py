"""What PixArt-alpha and Wan make of captions before the tokenizer -> goldens/captions.json, prompts.json.

Each caption is given to diffusers' own functions: PixArt's once as it is by default and once with
`clean_caption`, which needs beautifulsoup4 and ftfy, and Wan's `prompt_clean`.
"""

import json

import tiny
from diffusers import PixArtAlphaPipeline
from diffusers.pipelines.wan.pipeline_wan import prompt_clean
from diffusers.utils import is_bs4_available, is_ftfy_available

CAPTIONS = [
    "",
    "   ",
    "A Red Circle Moves LEFT",
    "  \t Leading and trailing \n ",
    "ΟΔΟΣ, İstanbul, STRASSE ẞ",
    "\x1cfile separator\x1f",
    "a+plus+sign and 100%25 of %E2%82%AC, %zz and %C3 alone",
    "A <person> sits beside <person>",
    "see https://example.com/Photo?id=3 and HTTP://x now",
    "visit www.flowers.co.uk/roses-red/ or my-site.org, write to me@home.net today",
    "mail someone.else.com@work and (example.edu)",
    "<p>Some <b>bold</b> text<br/>and <a href='x > y'>a link</a></p>",
    "1 < 2 and 3 > 2, <3 you, a<b",
    "before <!-- a comment --> after <script>var x = 1 < 2;</script> end <style>p {}</style>!",
    "<!doctype html><?xml version='1.0'?>kept <![CDATA[inside]]> </nothing> done",
    "fish &amp; chips &lt;b&gt;bold&lt;/b&gt; &eacute;t&eacute; &hellip; &nosuch; &#169; &#x41; &copy",
    "&quot;quoted&quot; &quotquoted &amp;amp; tea",
    "photo by @Some_Body2 for @studio.",
    "漢字かな カタカナ ㍿ 한국어 text",
    "em—dash, en–dash, minus‐hyphen, wave〜, double⸺, ---",
    "`ticks` ´acute´ «guillemets» “double” ‘single’ ¨dots¨",
    "server 192.168.0.1 is up at 10:45   ",
    "line one\\nline two\nline three",
    "#1 of #1234 and #123456 then 1234567 and 12345",
    "IMG_2031.JPG holiday.png a.b.webp video.mp4x",
    '"""AUSVERKAUFT""" now... or \'\'never\'\' . maybe',
    "***SALE*** {50%} [new] (old) ~tilde~ a|b\\c/d * ½ price ¿que? ®",
    "this-is-my_cute_cat-photo",
    "a-b c_d e",
    "model JC6640 and jc6640vc with 6640vc231, j2d1a2a3 and ab1",
    "Worldwide Free Shipping! free download free, click for more, click on this",
    "png images, jpg image of a cat, pdf page 12, mp4",
    "poster 30x40, 1.5×2.5 and 20х30 cm",
    "title : subtitle ,next.word/again 3.14 1,000",
    "'whole caption in quotes'",
    "-starts with a dash and ends with a plus+",
    ".hidden",
    "ﬁne ﬂour, ＦＵＬＬ width　space, ｶﾀｶﾅ, cafe\u0301",
    "it\u2019s \u201aquoted\u201e with \u02bc and \u201b, zero\ufeffwidth, bell\x07",
    "â€œsmart quotesâ€¦ and â€˜tickâ€¦",
    "ã\x83\x84 shrugs, naïve café, 5 € each",
    "combining e\u0301clair, x\u0301y123, \u0915\u094d\u0937 \u0967\u0968\u0969",
    "a video of a red panda, 4k, highly detailed, by artist_name",
    "A small cactus with a happy face in the Sahara desert.",
    "&amp;lt;i&amp;gt;twice escaped&amp;lt;/i&amp;gt; &#38;#65;",
]

# Only for Wan, which keeps capitals, and with them sequences of two bytes.
PROMPTS = [
    "Un cafÃ© Ã\xa0 Paris, naÃ¯ve faÃ§ade, Ã‰tÃ©",
    "DÃ¼sseldorf StraÃŸe, smÃ¸rrebrÃ¸d, Ã…ngstrÃ¶m",
    "voilÃ le travail, Ã la mode",
    "Â©2024 Â® 25Â°C, costs Â£5 or â‚¬6 â€“ cheap",
    "itâ€™s â€œquotedâ€\x9d andâ€¦ more",
    "cafÃ© with \u732b and the moon",
    "\u732b says itâ€™s cafÃ© time — ok",
    "ÃƒÂ© twice garbled",
    "CAFÉ–BAR, L’ÉTÉ… Ñandú, ¡Olé! «oui» 5° À la carte",
    "Smörgåsbord, Łódź, Đorđe, œuvre, Ærø, Œ 5 œ.",
    "ÐŸÑ€Ð¸Ð²ÐµÑ‚ мир",
    "ã\x81‚ã\x81„ and ã‚\x8b and ç\x8c« cat",
    "ðŸ˜€ grins, ðŸ\x90ˆ",
    "Ø§Ù„Ø¹Ø±Ø¨ÙŠØ©",
    "à¤¨à¤®à¤¸à¥\x8dà¤¤à¥‡ and à²²",
    "a\x85b \x93quoted\x94 \x96 dash",
    "&lt;b&gt;bold&lt;/b&gt; &amp;amp; &eacute; &EACUTE;COLE &SZLIG; &NTILDE; &nTILDE; &hellip; &ldquo;hi&rdquo;",
    "<b>kept &ldquo;curly&rdquo;</b> &amp;lt;i&amp;gt; &eacute &copy 2024 &notit; &nosuch;",
    "line &ldquo;one&rdquo;\nline <two> &ldquo;\nline &ldquo;three&rdquo; \u201cafter\u201d",
    "&#233; &#xE9; &#8220;x&#8221; &#128; &#0; &#x110000; &#; &# 5;",
    "many    spaces\t\ttabs\r\n\r\nnew\u2028lines\u2029and\x0cfeeds\x0b\u3000wide\u00a0hard\u200bzero",
    "\x1b[31mred\x1b[0m text \x1b[5;1Hmoved \x1b[?25h stays",
    "ﬁne ﬂour ĲSSEL Ǆ ǅ Ǌ ŉ ﬅ, ＦＵＬＬ　ｗｉｄｔｈ ﾊﾟ ￠",
    "cafe\u0301 e\u0323\u0302 \u1e69 Å \u212b",
    "\ufeffmark \u206a\ufff9 \x00nul\x7f del",
    "„Gänsefüßchen“ ‚einfach‘ ‹spitz› `tick` ´acute´ \u02bc",
    "Price: £50 – £60 (½ off), §5 ¶2 ©me ®you ™us",
    "A cinematic shot of a red fox walking in fresh snow at dawn, 4k, --ar 16:9",
    "穿着红色外套的狐狸在雪地里行走，电影感",
]


def write_prompts():
    """Write goldens/prompts.json, one prompt per line."""
    captions = CAPTIONS + PROMPTS
    rows = [json.dumps({"caption": caption, "prompt": prompt_clean(caption)}) for caption in captions]
    (tiny.GOLDENS / "prompts.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"prompts.json: {len(rows)} prompts")


def main():
    """Write both files, one caption per line."""
    if not (is_bs4_available() and is_ftfy_available()):
        raise SystemExit("clean_caption needs beautifulsoup4 and ftfy")
    # The function uses nothing of the pipeline but a regex of its class.
    pipeline = PixArtAlphaPipeline.__new__(PixArtAlphaPipeline)
    rows = []
    for caption in CAPTIONS:
        [plain] = pipeline._text_preprocessing(caption)
        [clean] = pipeline._text_preprocessing(caption, clean_caption=True)
        rows.append(json.dumps({"caption": caption, "plain": plain, "clean": clean}))
    path = tiny.GOLDENS / "captions.json"
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"captions.json: {len(rows)} captions")
    write_prompts()


if __name__ == "__main__":
    main()
