//! No output is an input, wherever the input lies: what a run reads is still there after it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::folder::{Copy, run};
use crate::training::words;

/// Every file below a folder with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(contents(&path)),
            false => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    all
}

/// A small clip of a copy of a Wan that is shown a first frame.
fn generate(copy: &Copy, output: &Path, more: &[&str]) -> std::process::Output {
    let model = copy.path("model");
    let small = ["--frames", "5", "--height", "64", "--width", "64", "--steps", "1"];
    let ends = ["--model", model.to_str().unwrap(), "--output", output.to_str().unwrap()];
    run(&[&["generate", "--prompt", "x"], &small[..], &ends, more].concat())
}

/// The file itself, one that a link leads to, a picture of a folder, and all files of the model.
#[test]
fn what_is_read_is_not_overwritten() {
    let copy = Copy::of("wan-tiny-ti2v");
    let first = copy.path("given.png");
    let picture = crate::folder::goldens().join("pictures");
    let picture = fs::read_dir(picture).unwrap().map(|it| it.unwrap().path());
    let picture = picture.into_iter().find(|path| path.extension().unwrap() == "png").unwrap();
    fs::copy(picture, &first).unwrap();
    let folder = copy.path("given-clip");
    fs::create_dir(&folder).unwrap();
    fs::copy(&first, folder.join("0000.png")).unwrap();
    let link = copy.path("given-link.png");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&first, &link).unwrap();
    #[cfg(not(unix))]
    fs::copy(&first, &link).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let weights = copy.path("model/vae/diffusion_pytorch_model.safetensors");
    let latents = ["--save-latents".to_owned(), path(&weights)];
    let [format, png] = ["--format", "png"].map(str::to_owned);
    let image = |file: &Path| ["--image".to_owned(), path(file)];
    let before = contents(&copy.path(""));
    for (output, more) in [
        (first.clone(), image(&first)),
        (first.clone(), image(&link)),
        (link.clone(), image(&link)),
        (folder.join("0000.png"), image(&folder)),
        // Records are named after the whole output, so these would not be replaced by one.
        (copy.path("model/model_index.json"), [format, png]),
        (copy.path("out.gif"), latents.clone()),
    ] {
        let out = generate(&copy, &output, &more.each_ref().map(String::as_str));
        let message = words(&out);
        assert_eq!(out.status.code(), Some(2), "{output:?} {more:?}: {message}");
        assert!(message.contains("is an input of this run"), "{output:?} {more:?}: {message}");
        assert_eq!(contents(&copy.path("")), before, "{output:?} {more:?}");
    }
    // Beside what is read there is room.
    for output in [copy.path("model/sample.gif"), folder.join("made.gif")] {
        for _ in 0..2 {
            let [image, given] = image(&folder);
            let out = generate(&copy, &output, &[&image, &given, "--overwrite"]);
            assert!(out.status.success(), "{}", words(&out));
        }
        assert!(output.is_file());
    }
}
