//! The command itself on damaged folders and with odd arguments, as processes with little memory.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::mutate::{Corpus, Mutator};

/// What this target is called.
pub(crate) const NAME: &str = "command";

/// A process that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// The exit codes that a user is told of.
const CODES: [i32; 3] = [0, 1, 2];

/// Addresses that a process may have, in KiB: far more than these folders need.
const MEMORY: u64 = 6 << 20;

/// Values that somebody may type.
const VALUES: [&str; 16] = [
    "0",
    "-1",
    "1",
    "8",
    "33",
    "9007199254740993",
    "1e400",
    "NaN",
    "",
    "../x",
    "/dev/null",
    "\u{1b}[31m",
    "a b",
    "1,2,3",
    "16384",
    "random",
];

/// What is run; `@` is the folder, `%` an odd value.
const LINES: [&str; 14] = [
    "inspect @",
    "inspect @/transformer --tensors --json",
    "inspect @/vae/diffusion_pytorch_model.safetensors",
    "generate --model @ --prompt fox --steps 1 --frames 1 --height 16 --width 16 --output @/../out.png --overwrite",
    "generate --model @ --prompt % --steps 1 --frames 1 --height 16 --width 16 --output @/../out.png --overwrite",
    "generate --model @ --prompt fox --steps % --frames % --height % --width 16 --output @/../out.png --overwrite",
    "generate --model @ --prompt fox --seed % --guidance % --fps % --steps 1 --frames 1 --height 16 --width 16 --output @/../out.gif --overwrite",
    "generate --model @ --prompts @/model_index.json --steps 1 --frames 1 --height 16 --width 16 --output @/../out.png --overwrite",
    "generate --model @ --prompt fox --lora @/vae/diffusion_pytorch_model.safetensors:% --output @/../out.png --overwrite",
    "generate --model @ --prompt fox --transformer @/transformer/diffusion_pytorch_model.safetensors --steps 1 --frames 1 --height 16 --width 16 --output @/../out.png --overwrite",
    "generate --replay @/model_index.json",
    "doctor --data @ --bucket %",
    "preprocess --model @ --data @ --output @/../dataset --bucket 16x16x1 --fps % --extract %",
    "train @/model_index.json --run @/../run --set %",
];

/// Runs cases until the time is over, and returns how many failed.
pub(crate) fn run(
    root: &Path,
    moviola: &Path,
    (seed, from): (u64, u64),
    until: Instant,
    found: &Path,
) -> Result<usize> {
    let mut bad = 0;
    let mut number = from;
    while Instant::now() < until && bad < 10 {
        let place = tempfile::tempdir()?;
        let mut draw = Mutator::new(seed, number);
        let model = place.path().join("model");
        copy(&root.join("goldens/wan-tiny"), &model)?;
        let damaged = damage(&model, &mut draw)?;
        let line = LINES[draw.below(LINES.len())];
        let words: Vec<String> = line
            .split(' ')
            .map(|word| match word {
                "%" => VALUES[draw.below(VALUES.len())].to_owned(),
                word => word.replace('@', model.to_str().unwrap_or_default()),
            })
            .collect();
        if let Some(why) = fault(moviola, &words, place.path())? {
            bad += 1;
            let kept = found.join(format!("{NAME}-{seed}-{number}"));
            let _ = fs::remove_dir_all(&kept);
            copy(place.path(), &kept)?;
            println!(
                "{NAME}: case {number}: {why}: moviola {} ({damaged}); kept as {}",
                words.join(" "),
                kept.display()
            );
        }
        number += 1;
    }
    println!("{NAME}: {} cases, {bad} found", number - from);
    Ok(bad)
}

/// Damages one file, most times, and says which.
fn damage(model: &Path, draw: &mut Mutator) -> Result<String> {
    let mut files = Vec::new();
    list(model, &mut files)?;
    files.sort();
    if draw.below(5) == 0 {
        return Ok("nothing damaged".to_owned());
    }
    let file = &files[draw.below(files.len())];
    let input = draw.mutate(&Corpus::of(vec![fs::read(file)?]));
    fs::write(file, input)?;
    Ok(format!("{} damaged", file.strip_prefix(model).unwrap_or(file).display()))
}

/// What is wrong with how a command ends, if anything.
fn fault(moviola: &Path, words: &[String], place: &Path) -> Result<Option<String>> {
    let script = format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(moviola).args(words).current_dir(place);
    command.env("HF_HUB_OFFLINE", "1").env("RAYON_NUM_THREADS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the command")?;
    let mut errors = child.stderr.take().context("it has no stderr")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.by_ref().take(1 << 20).read_to_end(&mut text);
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
        text
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(Some("it hangs".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = reader.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut left = Vec::new();
    list(place, &mut left)?;
    let half = left.iter().find(|file| file.to_string_lossy().ends_with(".part"));
    Ok(match status.code() {
        _ if text.contains("panicked at") => Some("it panicked".to_owned()),
        Some(code) if CODES.contains(&code) => {
            let control =
                text.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t');
            match (half, control) {
                (Some(half), _) => Some(format!("it left {}", half.display())),
                (None, true) => Some("a control character reached the terminal".to_owned()),
                (None, false) if text.len() > 1 << 16 => {
                    Some(format!("it said {} bytes", text.len()))
                }
                _ => None,
            }
        }
        _ => Some(format!("it ended with {status}")),
    })
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy(&path, &target)?,
            false => _ = fs::copy(&path, &target)?,
        }
    }
    Ok(())
}
