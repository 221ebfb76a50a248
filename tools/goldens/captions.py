"""What PixArt-alpha makes of captions before the tokenizer -> goldens/captions.json.

Each caption is given to diffusers' own function, once as it is by default and once with
`clean_caption`, which needs beautifulsoup4 and ftfy.
"""

import json

import tiny
from diffusers import PixArtAlphaPipeline
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


def main():
    """Write goldens/captions.json, one caption per line."""
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


if __name__ == "__main__":
    main()
