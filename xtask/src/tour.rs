//! `cargo xtask tour`: a person's path through the command, from a heap of clips to a clip of their own.
//!
//! Clips of odd sizes, broken ones and captions with marks are made by ffmpeg; doctor, preprocess, a LoRA that is stopped by SIGTERM and goes
//! on, its page, exports in every dialect, `generate --lora`, diffusers with the same file, and a replay to the byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, command};

/// What to use on the way.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// An interpreter that has tools/goldens/requirements.txt and peft installed: diffusers then loads the LoRA too
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The folder to work in, which must not exist; it stays
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Without a screen, and asking nobody.
const BROWSER: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                       --disable-component-update --disable-sync --hide-scrollbars --window-size=1100,2600";

/// The command and where it works.
struct Tour {
    moviola: PathBuf,
    model: PathBuf,
    place: PathBuf,
}

/// Walks.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    for program in ["ffmpeg", "ffprobe"] {
        ensure!(
            process::succeeds(&mut command(program, "-version", root))?,
            "{program} is not installed; the tour begins with videos"
        );
    }
    process::run(&mut command("cargo", "build --workspace", root))?;
    let target = process::target_folder(root)?;
    let place = options.folder.clone().unwrap_or_else(|| target.join("tour"));
    if options.folder.is_none() && place.is_dir() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let tour =
        Tour { moviola: target.join("debug/moviola"), model: root.join("goldens/wan-tiny"), place };
    let begun = Instant::now();
    tour.clips()?;
    tour.dataset()?;
    tour.training(root)?;
    let made = tour.exports()?;
    if let Some(python) = &options.python {
        tour.diffusers(root, python)?;
    }
    tour.replay(&made)?;
    println!(
        "the tour took {} s; all of it is in {}",
        begun.elapsed().as_secs(),
        tour.place.display()
    );
    Ok(())
}

impl Tour {
    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Runs the command in the folder of the tour.
    fn moviola(&self, line: &str) -> Result<Output> {
        let model = self.model.to_string_lossy().into_owned();
        let words = line.split_whitespace().map(|word| word.replace('@', &model));
        let output = Command::new(&self.moviola).args(words).current_dir(&self.place).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!said.contains("panicked"), "moviola {line} panicked: {said}");
        Ok(output)
    }

    /// The same, which must succeed; returns what it said in all.
    fn good(&self, line: &str) -> Result<String> {
        let output = self.moviola(line)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "moviola {line} ended with {}: {said}", output.status);
        println!("moviola {line}");
        Ok(format!("{}{said}", String::from_utf8_lossy(&output.stdout)))
    }

    /// Clips as people have them.
    fn clips(&self) -> Result<()> {
        fs::create_dir(self.path("clips"))?;
        let make = |name: &str, source: &str, more: &str| {
            let mut ffmpeg = command("ffmpeg", "-v error -y -f lavfi -i", &self.path("clips"));
            process::run(ffmpeg.arg(source).args(more.split_whitespace()).arg(name))
        };
        let h264 = "-pix_fmt yuv420p";
        make(
            "wide.mp4",
            "testsrc=size=101x63:rate=30:duration=2",
            "-vf scale=100:62 -pix_fmt yuv420p",
        )?;
        make("tall.mkv", "testsrc2=size=48x96:rate=24:duration=2", h264)?;
        make("still.png", "testsrc=size=80x80", "-frames:v 1")?;
        make("small.mp4", "testsrc=size=32x32:rate=24:duration=1", h264)?;
        make("torn.mp4", "testsrc2=size=320x240:rate=24:duration=3", h264)?;
        let torn = self.path("clips/torn.mp4");
        let mut bytes = fs::read(&torn)?;
        let middle = bytes.len() / 2;
        bytes[middle..(middle + 4096).min(middle + middle / 2)].fill(0x5a);
        fs::write(torn, bytes)?;
        fs::write(self.path("clips/broken.mp4"), "this is no clip")?;
        let utf16: Vec<u8> =
            "\u{feff}a tall pattern".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (name, caption) in [
            ("wide.txt", "\u{feff}a wide pattern, größer".as_bytes().to_vec()),
            ("tall.caption", utf16),
            ("still.txt", b"a still pattern, gr\xf6\xdfer".to_vec()),
            ("small.txt", b"small".to_vec()),
            ("torn.txt", b"torn".to_vec()),
            ("broken.txt", b"broken".to_vec()),
        ] {
            fs::write(self.path("clips").join(name), caption)?;
        }
        Ok(())
    }

    /// Doctor finds what is broken; preprocess encodes the rest.
    fn dataset(&self) -> Result<()> {
        let line =
            "doctor --data clips --model @ --bucket 48x48x9 --bucket 48x48x1 --fps 12 --decode";
        let found = self.moviola(line)?;
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        ensure!(found.status.code() == Some(1), "doctor should skip something: {text}");
        println!("moviola {line}");
        for part in [
            "skipped broken.mp4",
            "skipped small.mp4",
            "skipped torn.mp4",
            "is damaged",
            "% cropped",
        ] {
            ensure!(text.contains(part), "doctor does not say `{part}`: {text}");
        }
        fs::remove_file(self.path("clips/torn.mp4"))?;
        let said = self.good(
            "preprocess --data clips --model @ --output dataset --bucket 48x48x9 --bucket 48x48x1 --fps 12 --extract chunk --trigger tour",
        )?;
        ensure!(said.contains("5 samples"), "preprocess made another number of samples: {said}");
        ensure!(self.good("inspect dataset")?.contains("tour, "), "the trigger word is missing");
        Ok(())
    }

    /// A LoRA that is stopped and goes on, with its page.
    fn training(&self, root: &Path) -> Result<()> {
        let recipe = root.join("recipes/wan-lora.yaml");
        let sets = [
            format!("models.student.from={}", self.model.display()),
            "models.student.rate={peak: 0.02, warmup: 0}".to_owned(),
            "data.source.path=dataset".to_owned(),
            "loop={steps: 60, seed: 3}".to_owned(),
            "checkpoint={every: 20}".to_owned(),
            "callbacks.validation={every: 20, prompts: [tour pattern], steps: 2, size: [5, 48, 48]}".to_owned(),
        ];
        let mut train = Command::new(&self.moviola);
        train.arg("train").arg(&recipe).args(["--run", "run"]).current_dir(&self.place);
        sets.iter().for_each(|set| _ = train.args(["--set", set]));
        let mut child = train.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let log = self.path("run/metrics.jsonl");
        let begun = Instant::now();
        while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 5 {
            ensure!(begun.elapsed() < Duration::from_secs(120), "the run does not begin");
            ensure!(child.try_wait()?.is_none(), "the run ended before it was stopped");
            sleep(Duration::from_millis(5));
        }
        process::run(&mut command("kill", &format!("-TERM {}", child.id()), &self.place))?;
        let status = child.wait()?;
        ensure!(status.code() == Some(130), "SIGTERM ended the run with {status}");
        println!("moviola train … stopped by SIGTERM");
        ensure!(self.path("run/report.html").is_file(), "a run that is stopped leaves its page");
        let said = self.good("train --run run")?;
        ensure!(said.contains("going on after step"), "the run did not go on: {said}");
        let page = fs::read_to_string(self.path("run/report.html"))?;
        for part in ["base model", "Validation after step 60", "a LoRA of rank 32", "data:image/"] {
            ensure!(page.contains(part), "the page lacks `{part}`");
        }
        self.picture("run/report.html", "report.png")
    }

    /// What a browser shows of a page, to be looked at; where there is none, that is said.
    fn picture(&self, page: &str, output: &str) -> Result<()> {
        let browsers = ["chromium", "chromium-browser", "google-chrome"];
        let starts = |name: &str| {
            process::succeeds(&mut command(name, "--version", &self.place)).unwrap_or(false)
        };
        let Some(browser) = browsers.into_iter().find(|name| starts(name)) else {
            println!("{page} was not looked at: there is no chromium");
            return Ok(());
        };
        let mut look = command(browser, BROWSER, &self.place);
        look.arg(format!("--user-data-dir={}", self.path("browser").display()));
        look.arg(format!("--screenshot={}", self.path(output).display()));
        look.arg(format!("file://{}", self.path(page).display()));
        // It talks of what it does not find on a machine without a screen.
        process::run(look.stdout(Stdio::null()).stderr(Stdio::null()))?;
        fs::remove_dir_all(self.path("browser"))?;
        let length = fs::metadata(self.path(output))?.len();
        ensure!(length > 10_000, "{browser} shows nothing of {page}: {length} bytes");
        println!("{page} looks like {}", self.path(output).display());
        Ok(())
    }

    /// Every dialect means the same; the last one's clip is made.
    fn exports(&self) -> Result<String> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for dialect in ["diffusers", "comfyui", "kohya"] {
            self.good(&format!("export run --output {dialect}.safetensors --dialect {dialect}"))?;
            self.good(&format!(
                "generate --model @ --prompt tour --steps 3 --frames 5 --height 48 --width 48 --max-tokens 32 --seed 7 --lora \
                 {dialect}.safetensors --output {dialect}.gif"
            ))?;
            all.push(fs::read(self.path(&format!("{dialect}.gif")))?);
        }
        ensure!(all[0] == all[1] && all[1] == all[2], "dialects make different clips");
        self.good("generate --model @ --prompt tour --steps 3 --frames 5 --height 48 --width 48 --max-tokens 32 --seed 7 --output plain.gif")?;
        ensure!(fs::read(self.path("plain.gif"))? != all[0], "the LoRA changes nothing");
        Ok("diffusers.gif".to_owned())
    }

    /// diffusers loads the file and predicts with it what our merged folder predicts.
    fn diffusers(&self, root: &Path, python: &Path) -> Result<()> {
        self.good("export run --as folder --output merged")?;
        let script = root.join("tools/parity/lora_export_parity.py");
        let mut check = Command::new(python);
        check.arg(script).arg(&self.model).args(["diffusers.safetensors", "merged"]);
        process::run(check.current_dir(&self.place))
    }

    /// The record makes the same bytes again.
    fn replay(&self, made: &str) -> Result<()> {
        self.good(&format!("generate --replay {made}.json --output again.gif"))?;
        match fs::read(self.path(made))? == fs::read(self.path("again.gif"))? {
            true => Ok(()),
            false => bail!("the replay of {made} has other bytes"),
        }
    }
}
