//! Lines of a file of prompts: what says a thing twice, and what only looks like a setting.

use std::fs;

use crate::folder::Copy;
use crate::training::words;

const SMALL: [&str; 6] = ["--steps", "1", "--frames", "1", "--max-tokens", "8"];

/// Runs with a file of prompts of these bytes.
fn with_prompts(copy: &Copy, name: &str, text: &[u8]) -> std::process::Output {
    let path = copy.path(name);
    fs::write(&path, text).unwrap();
    let prompts = ["--prompts", path.to_str().unwrap(), "--height", "16", "--width", "16"];
    copy.generate(&[&SMALL[..], &prompts].concat())
}

/// Of two names of one setting none wins in silence.
#[test]
fn a_line_says_a_setting_once() {
    let copy = Copy::of("wan-tiny");
    for (more, names) in [
        (r#""negative":"a","negative_prompt":"b""#, ["`negative`", "`negative_prompt`"]),
        (r#""guidance":2,"cfg_scale":7"#, ["`guidance`", "`cfg_scale`"]),
        (r#""guidance_scale":2,"cfg_scale":2"#, ["`guidance_scale`", "`cfg_scale`"]),
        (r#""size":"16x16","width":32"#, ["`size`", "`width`"]),
        (r#""height":16,"size":"16x16""#, ["`height`", "`size`"]),
    ] {
        let out = with_prompts(
            &copy,
            "given.jsonl",
            format!("{{\"prompt\":\"a fox\",{more}}}").as_bytes(),
        );
        let said = words(&out);
        assert_eq!(out.status.code(), Some(2), "{more}: {said}");
        let is_said = |part: &str| said.contains(part);
        assert!(is_said(names[0]) && is_said(names[1]) && is_said("line 1"), "{more}: {said}");
    }
    let both =
        br#"{"prompt":"a fox","negative":null,"negative_prompt":"b","width":16,"height":16}"#;
    let out = with_prompts(&copy, "given.jsonl", both);
    assert!(out.status.success(), "{}", words(&out));
}

/// Dashes are a part of a text; a setting of another program is refused with what to do.
#[test]
fn dashes_are_text() {
    let copy = Copy::of("wan-tiny");
    let out = with_prompts(&copy, "given.txt", b"a fox --- and an owl -- at night --1\n");
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(copy.record("out.png")["prompt"], "a fox --- and an owl -- at night --1");
    let out = with_prompts(&copy, "given.txt", b"a fox --w 512\n");
    let said = words(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    for part in ["line 1", "`--w`", "take it out", ".jsonl"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
}

/// A file of prompts is read as captions are, whatever editor wrote it.
#[test]
fn prompts_are_read_in_any_encoding() {
    let copy = Copy::of("wan-tiny");
    let text = "ein größerer Fuchs";
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin: Vec<u8> = text.chars().map(|own| own as u8).collect();
    for bytes in
        [[b"\xff\xfe", &units[..]].concat(), latin, [b"\xef\xbb\xbf", text.as_bytes()].concat()]
    {
        let out = with_prompts(&copy, "given.txt", &bytes);
        assert!(out.status.success(), "{}", words(&out));
        assert_eq!(copy.record("out.png")["prompt"], text);
    }
}
