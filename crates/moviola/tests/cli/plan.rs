//! `moviola plan` and `moviola bench --calibrate`: tables, data, files and refusals.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::folder::{goldens, run};

const SIZES: [&str; 6] = ["--height", "64", "--width", "64", "--frames", "5"];

fn wan() -> String {
    goldens().join("wan-tiny").to_str().unwrap().to_owned()
}

fn root(path: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(path).to_str().unwrap().to_owned()
}

#[track_caller]
fn planned(words: &[&str]) -> String {
    let output = run(&[&["plan"], words].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&planned(&[words, &["--json"]].concat())).unwrap()
}

#[track_caller]
fn refused(words: &[&str], want: &str) {
    let output = run(&[&["plan"], words].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains(want), "{words:?}: {message}");
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_table_and_bars() {
    let wan = wan();
    let text = planned(&[&[wan.as_str(), "--ranks", "2"], &SIZES[..]].concat());
    for want in ["wan-tiny:", "32 video tokens", "--cfg 2", "rank", "sent/step", "efficiency", "█"]
    {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert!(text.lines().filter(|line| line.contains('█')).count() >= 4, "{text}");
    // A layout is told as one would ask for it.
    let shape = root("hardware/hunyuan-video.yaml");
    let text = planned(&[&shape, "--pipefusion", "2", "--warmup", "50", "--stages", "20,40"]);
    assert!(text.contains(": --pipefusion 2 --warmup 50 --stages 20,40\n"), "{text}");
    // A model that must be given a picture is given one.
    let picture = goldens().join("wan-tiny-i2v");
    planned(&[&[picture.to_str().unwrap(), "--ulysses", "2"], &SIZES[..]].concat());
}

#[test]
fn the_same_as_data() {
    let wan = wan();
    let said = json(&[&[wan.as_str(), "--tensor", "2", "--cfg", "2"], &SIZES[..]].concat());
    let ranks = said["plan"]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    let parameters = said["parameters"].as_u64().unwrap();
    let own = ranks[0]["parameters"].as_u64().unwrap();
    assert!(own < parameters && own > parameters / 2, "{own} of {parameters}");
    assert!(ranks.iter().all(|rank| rank["traffic_bytes_per_step"].as_u64().unwrap() > 0));
    assert_eq!(said["plan"]["degrees"]["tensor"], 2);
    let times: Vec<f64> = said["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["seconds"].as_f64().unwrap())
        .collect();
    assert!(!times.is_empty() && times.iter().all(|time| *time > 0.0));
    // More steps take longer, and no guidance is cheaper.
    let seconds = |more: &[&str]| {
        let words = [&[wan.as_str(), "--ranks", "1"], &SIZES[..], more].concat();
        json(&words)["plan"]["seconds"].as_f64().unwrap()
    };
    assert!(seconds(&["--steps", "40"]) > seconds(&["--steps", "20"]));
    assert!(seconds(&["--guidance", "1"]) < seconds(&["--guidance", "3"]));
}

#[test]
fn shape_files() {
    let (shape, h100) = (root("hardware/hunyuan-video.yaml"), root("hardware/h100.yaml"));
    let said = json(&[&shape, "--hardware", &h100, "--ranks", "8"]);
    assert!((12e9..14e9).contains(&said["parameters"].as_f64().unwrap()), "{}", said["parameters"]);
    assert_eq!(said["plan"]["fits"], true);
    for hardware in ["h100", "h20", "l40", "zen4"] {
        let file = root(&format!("hardware/{hardware}.yaml"));
        planned(&[&shape, "--hardware", &file, "--ulysses", "2"]);
    }
    refused(&[&shape, "--ulysses", "2", "--height", "64"], "a shape file says how many tokens");
}

/// The figures of GPUs on the page are what `plan` says, and those of H20 are within 15 % of what xDiT publishes.
#[test]
fn the_page_says_what_plan_says_of_gpus() {
    let (shape, page) = (root("hardware/hunyuan-video.yaml"), root("docs/parallel.md"));
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| GPUs | H20 said |").unwrap();
    let number = |cell: &str| cell.trim().trim_end_matches(" s").parse::<f64>().unwrap();
    let mut seen = Vec::new();
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let gpus = cells[1].split(' ').next().unwrap();
        for (hardware, said, published) in
            [("h20", cells[2], cells[3]), ("h100", cells[5], cells[6])]
        {
            let file = root(&format!("hardware/{hardware}.yaml"));
            let plan = json(&[&shape, "--hardware", &file, "--ulysses", gpus]);
            let seconds = plan["plan"]["seconds"].as_f64().unwrap();
            assert_eq!(seconds.round(), number(said), "{gpus} of {hardware}");
            let off = (seconds / number(published) - 1.0).abs();
            assert!(off <= 0.15 || hardware == "h100", "{gpus} of {hardware}: off by {off}");
        }
        seen.push(gpus);
    }
    assert_eq!(seen, ["1", "2", "4", "8"]);
}

#[test]
fn bad_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let shape = fs::read_to_string(root("hardware/hunyuan-video.yaml")).unwrap();
    let cases = [
        (shape.replace("layers:", "lairs:"), "lairs"),
        (shape.replace("heads: 24", "heads: 0"), "`heads` is 0; choose 1 to"),
        (shape.replace("heads: 24", "heads: 25"), "not a multiple of `heads` 25"),
        (shape.replace("video: 118800", "smell: 3"), "smell"),
        ("[1, 2".to_owned(), "MODEL: "),
        (String::new(), "MODEL: "),
    ];
    for (text, want) in cases {
        refused(&[&file("shape.yaml", &text), "--ranks", "2"], want);
    }
    refused(&["nowhere.yaml", "--ranks", "2"], "nowhere.yaml");
    let hardware = fs::read_to_string(root("hardware/h100.yaml")).unwrap();
    let cases = [
        (hardware.replace("memory:", "memories:"), "memories"),
        (hardware.replace("flops: 9.89e14", "flops: -1"), "`flops` is -1; give a number above 0"),
        (hardware.replace("flops: 9.89e14", "flops: .nan"), "`flops` is NaN"),
        (hardware.replace("ranks_per_host: 8", "ranks_per_host: 0"), "`ranks_per_host` is 0"),
        (hardware.replace("efficiency: 0", "efficiency: 7"), "1 at the most"),
    ];
    let wan = wan();
    for (text, want) in cases {
        let file = file("hardware.yaml", &text);
        refused(&[&wan, "--ranks", "2", "--hardware", &file], want);
    }
}

/// What `bench --calibrate` measures is what `--hardware` reads.
#[test]
fn a_measured_machine_is_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here.yaml");
    let file = file.to_str().unwrap();
    let output = run(&["bench", "--calibrate", "--ranks", "2", "--output", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(file).unwrap();
    for key in ["flops:", "efficiency:", "attention:", "stream:", "memory:", "within:"] {
        assert!(text.lines().any(|line| line.starts_with(key)), "no {key} in {text}");
    }
    let wan = wan();
    let said = json(&[&[wan.as_str(), "--ulysses", "2", "--hardware", file], &SIZES[..]].concat());
    assert!(said["plan"]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{said}");
    assert_eq!(said["plan"]["fits"], true);
}

#[test]
fn illegal_layouts_name_the_nearest() {
    let wan = wan();
    let cases: [(&[&str], &str); 5] = [
        (&["--ulysses", "4"], "2 heads per tensor rank are fewer; the nearest is 2"),
        (&["--ulysses", "4"], "the nearest layout of 4 ranks is --cfg 2 --ulysses 2"),
        (&["--tensor", "3"], "the nearest layout of 3 ranks is --ring 3"),
        (&["--ranks", "3", "--cfg", "2"], "there are 3 ranks"),
        (&["--layout", "auto", "--cfg", "2"], "cannot be used with"),
    ];
    for (layout, want) in cases {
        refused(&[&[wan.as_str()], &SIZES[..], layout].concat(), want);
    }
}

/// What generate does with `--layout auto` is what plan says.
#[test]
fn auto_is_what_was_planned() {
    let (wan, folder) = (wan(), tempfile::tempdir().unwrap());
    let clip = folder.path().join("clip.gif");
    let words = ["generate", "--model", &wan, "--prompt", "x", "--steps", "1", "--layout", "auto"];
    let more = ["--ranks", "2", "--output", clip.to_str().unwrap()];
    let output = run(&[&words[..], &more, &SIZES[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = fs::read_to_string(folder.path().join("clip.gif.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert!(record.to_string().contains("\"cfg\":2"), "{record}");
}
