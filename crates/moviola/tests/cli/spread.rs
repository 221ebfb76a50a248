//! Requests on a number of ranks that choose a layout: whatever they choose, what one rank makes.

use crate::folder::{Copy, run};
use crate::subjects::{all, compare, latents};

#[test]
fn every_folder_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for subject in all(folder.path()) {
        let want = latents(&subject, run, &[]);
        for ranks in ["1", "2", "3", "4", "6", "8"] {
            let got = latents(&subject, run, &["--ranks", ranks, "--threads", "1"]);
            compare(&format!("{} on {ranks} ranks", subject.name), &got, &want);
        }
    }
}

/// Prompts of several sizes and step counts in one run: each is a plan of its own, and what it is alone.
#[test]
fn prompts_with_settings_of_their_own_on_ranks() {
    let copy = Copy::of("pixart-tiny");
    let (words, count) = crate::subjects::prompts(&copy.path("given.jsonl"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for layout in crate::subjects::LAYOUTS {
        let out = copy.generate_to("out.png", &[&words[..], layout].concat());
        assert!(out.status.success(), "{layout:?}: {}", String::from_utf8_lossy(&out.stderr));
        for (at, alone) in crate::subjects::alone().into_iter().enumerate() {
            let got = std::fs::read(copy.path(&format!("out-{at:03}.png"))).unwrap();
            let out = copy.generate_to("alone.png", &[&alone[..], layout].concat());
            assert!(out.status.success(), "{layout:?}: {}", String::from_utf8_lossy(&out.stderr));
            let want = std::fs::read(copy.path("alone.png")).unwrap();
            assert!(got == want, "{layout:?}, line {at}");
        }
        assert!(!copy.path(&format!("out-{count:03}.png")).exists());
    }
}

/// A line whose size a layout cannot share is named: others have sizes of their own.
#[test]
fn a_layout_that_does_not_fit_names_the_line() {
    let copy = Copy::of("pixart-tiny");
    let lines = "{\"prompt\": \"a fox\"}\n# small\n{\"prompt\": \"a cat\", \"height\": 32, \"width\": 32}\n";
    std::fs::write(copy.path("given.jsonl"), lines).unwrap();
    let given = copy.path("given.jsonl");
    let words = ["--prompts", given.to_str().unwrap(), "--steps", "2", "--ring", "5"];
    let out =
        copy.generate_new("out.png", &[&words[..], &["--height", "64", "--width", "64"]].concat());
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{message}");
    let want = "given.jsonl: --ring: 5 ranks share a sequence of 4 tokens";
    assert!(message.contains("--prompts: line 3 of ") && message.contains(want), "{message}");
    assert!(copy.written().is_empty(), "{:?}", copy.written());
}

/// What stages cannot do is refused before anything is opened, whoever chose them.
#[test]
fn guidance_about_whole_clips_is_refused_to_stages() {
    let copy = Copy::of("ltx2-tiny");
    let sizes = ["--prompt", "a fox", "--frames", "9", "--height", "64", "--width", "32"];
    let words = [&sizes[..], &["--steps", "2", "--max-tokens", "16", "--stg-blocks", "0"]].concat();
    let out = copy.generate_new("out.gif", &[&words[..], &["--pipefusion", "2"]].concat());
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(message.contains("--pipefusion: stages work on some of the tokens"), "{message}");
    assert_eq!(out.status.code(), Some(2));
    assert!(copy.written().is_empty(), "{:?}", copy.written());
}
