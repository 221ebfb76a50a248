//! Files as Windows and its programs leave them.

use std::fs;

use crate::folder::{Copy, run, write_lora};
use crate::preprocess::{Workplace, ids};
use crate::training::words;

const CLIPS: [&str; 2] = ["--bucket", "32x32x1"];

#[test]
fn endings_may_be_capitals() {
    let place = Workplace::new();
    place.picture("clip1.png", [32, 32], 1, "a fox");
    place.picture("clip2.png", [32, 32], 2, "an owl");
    let rename = |from: &str, to: &str| {
        fs::rename(place.path("clips").join(from), place.path("clips").join(to)).unwrap();
    };
    rename("clip1.png", "CLIP1.PNG");
    rename("clip1.txt", "CLIP1.TXT");
    rename("clip2.txt", "clip2.Caption");
    place.encoded("pixart-tiny", "clips", &CLIPS);
    let samples = place.samples();
    assert_eq!(ids(&samples), ["CLIP1.PNG", "clip2.png"]);
    let captions: Vec<&str> = samples.iter().map(|own| own.origin.caption.as_str()).collect();
    assert_eq!(captions, ["a fox", "an owl"]);
}

/// A table of Excel names its separator in a line of its own, and paths with the other slash.
#[test]
fn tables_of_windows_are_read() {
    let place = Workplace::new();
    place.picture("a.png", [32, 32], 1, "");
    fs::create_dir(place.path("clips/sub")).unwrap();
    fs::rename(place.path("clips/a.png"), place.path("clips/sub/a.png")).unwrap();
    for (at, first) in ["sep=;\r\n", "\"sep=;\"\n", "\u{feff}SEP=;\r\n", ""].into_iter().enumerate()
    {
        let table =
            format!("{first}path;caption\r\nclips\\sub\\a.png;a fox, red, old, and tired\r\n");
        fs::write(place.path("clips.csv"), table).unwrap();
        let told = place.encoded("pixart-tiny", "clips.csv", &CLIPS);
        assert!(told.contains("1 samples"), "{at}: {told}");
        let samples = place.samples();
        assert_eq!(ids(&samples), ["clips/sub/a.png"]);
        assert_eq!(samples[0].origin.caption, "a fox, red, old, and tired");
    }
    // Here a backslash may be a part of a name.
    #[cfg(unix)]
    {
        fs::copy(place.path("clips/sub/a.png"), place.path("clips\\b.png")).unwrap();
        fs::write(place.path("clips.csv"), "path,caption\nclips\\b.png,an owl\n").unwrap();
        place.encoded("pixart-tiny", "clips.csv", &[&CLIPS[..], &["--overwrite"]].concat());
        assert_eq!(ids(&place.samples()), ["clips\\b.png"]);
    }
}

#[test]
fn models_of_windows_are_read() {
    let copy = Copy::of("wan-tiny");
    let lora = copy.path("LORA.SAFETENSORS");
    write_lora(&lora);
    let told = run(&["inspect", lora.to_str().unwrap()]);
    assert!(told.status.success(), "{}", words(&told));
    assert!(String::from_utf8_lossy(&told.stdout).contains("LoRA"));
    let small = ["--prompt", "a fox", "--steps", "1", "--frames", "1", "--max-tokens", "8"];
    let small = [&small[..], &["--height", "16", "--width", "16"]].concat();
    let plain = copy.generate(&small);
    assert!(plain.status.success(), "{}", words(&plain));
    let plain = fs::read(copy.path("out.png")).unwrap();
    let mut marked = 0;
    let mut folders = vec![copy.path("model")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|own| own == "json") {
                let text = fs::read(&path).unwrap();
                fs::write(&path, [b"\xef\xbb\xbf", &text[..]].concat()).unwrap();
                marked += 1;
            }
        }
    }
    assert!(marked >= 5, "{marked} files have a mark");
    let out = copy.generate(&small);
    assert!(out.status.success(), "{}", words(&out));
    assert!(fs::read(copy.path("out.png")).unwrap() == plain, "a mark changes the picture");
    let record = copy.path("out.png.json");
    let text = fs::read(&record).unwrap();
    fs::write(&record, [b"\xef\xbb\xbf", &text[..]].concat()).unwrap();
    let again = copy.path("again.png");
    let told = run(&[
        "generate",
        "--replay",
        record.to_str().unwrap(),
        "--output",
        again.to_str().unwrap(),
    ]);
    assert!(told.status.success(), "{}", words(&told));
    assert!(fs::read(again).unwrap() == plain);
    for name in ["model_index.json", "transformer/config.json"] {
        let told = run(&["inspect", copy.path("model").join(name).to_str().unwrap()]);
        assert!(told.status.success(), "{name}: {}", words(&told));
    }
}
