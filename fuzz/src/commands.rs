//! The command itself on damaged folders and with odd arguments, as processes with little memory.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

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

/// What is run; `@` is the model, `&` the folder of what is given beside it, `%` an odd value.
const LINES: [&str; 45] = [
    "inspect @",
    "inspect @/transformer --tensors --json",
    "inspect @/vae/diffusion_pytorch_model.safetensors",
    "inspect &/dataset",
    "inspect &/run --json",
    "export &/run --output @/../style.safetensors --dialect %",
    "export &/run --as folder --output @/../merged",
    "export &/run --as gguf --dtype % --output @/../merged.gguf",
    // A run of very many steps is no hang.
    "train --run &/run --dry-run --set loop.steps=%",
    "train --run &/run --set loop.steps=2",
    "train &/wan-lora.yaml --run &/run --change models.student.rate.peak=%",
    "exam --model @ --steps % --colour % --frames %",
    "import &/dataset --output @/../imported",
    "completions %",
    "man @/../pages",
    "inspect &/lora.safetensors --tensors",
    "inspect &/small.gguf --json",
    "generate --model @ --prompt fox SMALL --output @/../out.png",
    "generate --model @ --prompt % SMALL --output @/../out.png",
    "generate --model @ --prompt fox --steps % --frames % --height % --width 16 --output @/../out.png",
    "generate --model @ --prompt fox --seed % --guidance % --fps % SMALL --output @/../out.gif",
    "generate --model @ --prompts @/model_index.json SMALL --output @/../out.png",
    "generate --model @ --prompts &/prompts.jsonl SMALL --output @/../out.png",
    "generate --model @ --prompts &/prompts.txt SMALL --output @/../out.png",
    "generate --model @ --prompt fox --lora @/vae/diffusion_pytorch_model.safetensors:% --output @/../out.png",
    "generate --model @ --prompt fox --lora &/lora.safetensors:% SMALL --output @/../out.png",
    "generate --model @ --prompt fox --transformer @/transformer/diffusion_pytorch_model.safetensors SMALL --output @/../out.png",
    "generate --model @ --prompt fox --noise &/lora.safetensors SMALL --output @/../out.png",
    "generate --model @ --prompt fox --image &/clips/photo.png --fit % SMALL --output @/../out.gif",
    "generate --model @ --prompt fox --image &/photo.webp SMALL --output @/../out.png",
    "generate --model @ --prompt fox --audio &/small.wav SMALL --output @/../out.gif",
    "generate --model @ --prompt fox --video-prefix &/h264.mp4 SMALL --output @/../out.gif",
    "generate --replay @/model_index.json",
    "generate --replay &/made.png.json --output @/../out.png",
    "plan @ --ranks %",
    "plan &/hunyuan-video.yaml --hardware &/zen4.yaml --ulysses %",
    "doctor --data @ --bucket %",
    "doctor --data &/table.csv --bucket 16x16x1",
    "doctor --data &/clips --bucket 16x16x1 --suggest-buckets",
    "preprocess --model @ --data @ --output @/../dataset --bucket 16x16x1 --fps % --extract %",
    "preprocess --model @ --data &/clips --output @/../dataset --bucket 16x16x1",
    "convert-recipe &/flexible.yaml --output @/../recipe.yaml",
    "train @/model_index.json --run @/../run --set %",
    "train &/quickstart.yaml --dry-run --run @/../run --set loop.steps=%",
    "train &/wan-lora.yaml --run @/../run --set models.student.from=@ --set data.source.path=&/dataset --set loop.steps=1 --set callbacks={}",
];

/// What stands for `SMALL`.
const SMALL: &str = "--steps 1 --frames 1 --height 16 --width 16";

/// The models whose folders are damaged.
const MODELS: [&str; 4] = ["wan-tiny", "wan-tiny-i2v", "pixart-tiny", "ltx2-tiny"];

/// What is given beside a model, by its place in the repository.
const GIVEN: [&str; 14] = [
    "fuzz/corpus/gguf/small.gguf",
    "fuzz/corpus/place/prompts.jsonl",
    "fuzz/corpus/place/prompts.txt",
    "fuzz/corpus/csv/table.csv",
    "fuzz/corpus/sound/small.wav",
    "fuzz/corpus/clip/h264.mp4",
    "fuzz/corpus/foreign-config/flexible.yaml",
    "goldens/pictures/photo.webp",
    "hardware/hunyuan-video.yaml",
    "hardware/zen4.yaml",
    "recipes/quickstart.yaml",
    "recipes/wan-lora.yaml",
    "goldens/pictures/photo.png",
    "goldens/lora/wan_comfy.safetensors",
];

/// Copies what is given into a folder, and has the command make a dataset, a run and a record there.
fn prepare(root: &Path, moviola: &Path, given: &Path) -> Result<()> {
    let clips = given.join("clips");
    fs::create_dir_all(&clips)?;
    for name in GIVEN {
        let from = root.join(name);
        let to = match from.file_name().unwrap_or_default().to_str() {
            Some("wan_comfy.safetensors") => given.join("lora.safetensors"),
            Some("photo.png") => clips.join("photo.png"),
            _ => given.join(from.file_name().unwrap_or_default()),
        };
        fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    fs::write(clips.join("photo.txt"), "a fox")?;
    fs::copy(root.join("fuzz/corpus/clip/small.mp4"), clips.join("small.mp4"))?;
    fs::write(clips.join("small.txt"), "a clip")?;
    let model = root.join("goldens/wan-tiny");
    let run = |line: &str| -> Result<()> {
        let words = words(line, &model, given, &mut Mutator::new(0, 0));
        let done = Command::new(moviola).args(&words).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "moviola {}: {said}", words.join(" "));
        Ok(())
    };
    run("preprocess --model @ --data &/clips --output &/dataset --bucket 16x16x1")?;
    run(
        "train &/wan-lora.yaml --run &/run --set models.student.from=@ --set data.source.path=&/dataset --set loop.steps=1 \
         --set models.student.rate.warmup=0 --set callbacks={}",
    )?;
    run("generate --model @ --prompt fox SMALL --output &/made.png")
}

/// The words of a line.
fn words(line: &str, model: &Path, given: &Path, draw: &mut Mutator) -> Vec<String> {
    let [model, given] = [model, given].map(|path| path.to_string_lossy().into_owned());
    let line = line.replace("SMALL", SMALL);
    let word = |word: &str| match word.split_once('%') {
        Some((before, _)) => format!("{before}{}", VALUES[draw.below(VALUES.len())])
            .replace('@', &model)
            .replace('&', &given),
        None => word.replace('@', &model).replace('&', &given),
    };
    line.split(' ').map(word).collect()
}

/// Runs cases until the time is over, and returns how many failed.
pub(crate) fn run(
    root: &Path,
    moviola: &Path,
    (seed, from): (u64, u64),
    until: Instant,
    found: &Path,
) -> Result<usize> {
    let (mut bad, mut number) = (0, from);
    let ground = tempfile::tempdir_in(crate::memory())?;
    let own = ground.path().join("given");
    prepare(root, moviola, &own)?;
    while Instant::now() < until && bad < 10 {
        let place = tempfile::tempdir_in(crate::memory())?;
        let mut draw = Mutator::new(seed, number);
        let line = LINES[draw.below(LINES.len())];
        let (model, given) = (place.path().join("model"), place.path().join("given"));
        if line.contains('@') {
            copy(&root.join("goldens").join(MODELS[draw.below(MODELS.len())]), &model)?;
        }
        if line.contains('&') {
            copy(&own, &given)?;
        }
        let damaged = damage(place.path(), line, &mut draw)?;
        let words = words(line, &model, &given, &mut draw);
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

/// Damages one file, most times, and says which: often one that the line names.
fn damage(place: &Path, line: &str, draw: &mut Mutator) -> Result<String> {
    if draw.below(5) == 0 {
        return Ok("nothing damaged".to_owned());
    }
    let mut files = Vec::new();
    list(place, &mut files)?;
    let places = line.split(' ').filter_map(|word| word.split_once('&')?.1.strip_prefix('/'));
    let named: Vec<PathBuf> =
        places.map(|name| place.join("given").join(name.trim_end_matches(":%"))).collect();
    let is_named = |file: &PathBuf| named.iter().any(|name| file.starts_with(name));
    if !named.is_empty() && draw.below(4) > 0 {
        files.retain(is_named);
    }
    files.sort();
    let Some(file) = files.get(draw.below(files.len())) else {
        return Ok("nothing to damage".to_owned());
    };
    let input = draw.mutate(&Corpus::of(vec![fs::read(file)?]));
    fs::write(file, input)?;
    Ok(format!("{} damaged", file.strip_prefix(place).unwrap_or(file).display()))
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
    let half = left.iter().find(|file| is_half(file));
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

/// Whether a file is only a part of what was to be written: of a clip, its record belongs to it.
fn is_half(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = |other: &str| !file.with_file_name(other).exists();
    name.ends_with(".part")
        || ["out.png", "out.gif"].iter().any(|own| {
            let record = format!("{own}.json");
            name == *own && beside(&record) || *name == record && beside(own)
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
