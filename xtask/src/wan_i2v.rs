//! What the lesson `wan-i2v` begins with: clips of the shapes world as files, a tiny folder of image to video whose VAE
//! learnt them (`tools/lessons/wan_i2v.py`), and the dataset that `moviola preprocess` makes of both.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::learn::moviola;
use crate::process::{self, command};
use crate::venv;

/// How many clips: each of the 48 scenes many times. The VAE needs fewer.
const CLIPS: [&str; 2] = ["2304", "768"];

/// One latent frame for the first, and two for eight more; larger than usual, as a VAE that learns for minutes is not
/// sharp.
const SIZE: [&str; 2] = ["9", "2"];

/// Makes all of it below `folder`, as far as it is not there, and returns what the recipe is to be told.
pub(crate) fn make(root: &Path, folder: &Path, python: Option<&Path>) -> Result<Vec<String>> {
    let [base, dataset] = ["base", "dataset"].map(|name| folder.join(name));
    let [clips, few] = ["clips", "few-clips"].map(|name| folder.join(name));
    for (place, count) in [&clips, &few].into_iter().zip(CLIPS) {
        let mut shapes = command("cargo", "run --release --package data --example shapes --", root);
        process::run(shapes.arg(place).arg(count).args(SIZE))?;
    }
    if !base.join("model_index.json").exists() {
        let requirements = root.join("tools/goldens/requirements.txt");
        let python = venv::choose(python, root, "venv-goldens", &requirements)?;
        let script = root.join("tools/lessons/wan_i2v.py");
        process::run(command(&python.to_string_lossy(), "", root).arg(script).args([&few, &base]))?;
        // What another VAE made is of no use.
        if dataset.exists() {
            fs::remove_dir_all(&dataset)?;
        }
    }
    let mut preprocess = moviola(root);
    preprocess.arg("preprocess").arg("--model").arg(&base).arg("--data").arg(&clips);
    process::run(preprocess.arg("--output").arg(&dataset).args(["--bucket", "64x64x9"]))?;
    Ok(vec![
        format!("models.student.from={}", base.display()),
        format!("data.source.path={}", dataset.display()),
    ])
}
