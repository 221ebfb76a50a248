//! Requests on several ranks: whatever the layout, the latents of one rank.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use crate::folder::{goldens, run};

/// The f32 values of a tensor in a file.
fn values(file: &Path, key: &str) -> Vec<f32> {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor(key).unwrap().data().to_vec();
    data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Three samples of two prompts, by a layout; returns latents and the bytes of all clips.
fn made(model: &str, given: &[&str], layout: &[&str]) -> (Vec<f32>, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (clips, latents) = (path("clip.png"), path("latents.safetensors"));
    let mut words =
        vec!["generate", "--model", model, "--prompt", "a fox", "--prompt", "a red cat"];
    words.extend(["--prompt", "", "--steps", "2", "--seed", "5", "--guidance", "3"]);
    words.extend(["--output", &clips, "--save-latents", &latents]);
    let output = run(&[&words[..], given, layout].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{model} {layout:?}: {message}");
    let clip = |at: usize| fs::read(path(&format!("clip-{at:03}.png"))).unwrap();
    (values(Path::new(&latents), "latents"), (0..3).map(clip).collect())
}

/// Layouts whose sums have the order of one rank, and those whose sums have not.
const TO_THE_BIT: [&[&str]; 6] = [
    &["--data", "2"],
    &["--data", "4"],
    &["--cfg", "2"],
    &["--ulysses", "2"],
    &["--cfg", "2", "--ulysses", "2"],
    &["--ranks", "6", "--data", "3", "--cfg", "2"],
];
const ROUNDED: [&[&str]; 4] = [
    &["--ring", "3"],
    &["--tensor", "2"],
    &["--ring", "2", "--ulysses", "2", "--cfg", "2"],
    &["--tensor", "2", "--ring", "2", "--data", "2"],
];

#[track_caller]
fn check(model: &str, given: &[&str]) {
    let model = goldens().join(model);
    let model = model.to_str().unwrap();
    let (want, clips) = made(model, given, &[]);
    let deviation = (want.iter().map(|x| x * x).sum::<f32>() / want.len() as f32).sqrt();
    for layout in TO_THE_BIT {
        assert_eq!(made(model, given, layout), (want.clone(), clips.clone()), "{layout:?}");
    }
    for layout in ROUNDED {
        let (got, _) = made(model, given, layout);
        let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 2e-4 * deviation, "{model} {layout:?}: off by {off} of {deviation}");
    }
}

#[test]
fn videos_from_text() {
    check("wan-tiny", &["--height", "32", "--width", "48", "--frames", "5"]);
}

#[test]
fn videos_from_two_experts() {
    check("wan-tiny-experts", &["--height", "32", "--width", "32", "--frames", "5"]);
}

#[test]
fn videos_from_a_picture() {
    let picture = goldens().join("pictures/photo.png");
    let picture = picture.to_str().unwrap();
    let sizes = ["--height", "32", "--width", "32", "--frames", "5", "--image", picture];
    check("wan-tiny-i2v", &sizes);
}

#[test]
fn pictures_with_masked_text_and_sizes() {
    check("pixart-tiny-conditions", &["--height", "64", "--width", "32"]);
}

/// Matrices in bytes round tokens one by one, so whoever shares tokens makes the same bits.
#[test]
fn bytes_are_the_same_on_ranks() {
    let model = goldens().join("pixart-tiny");
    let model = model.to_str().unwrap();
    let given = ["--height", "64", "--width", "32", "--quantize", "int8"];
    let want = made(model, &given, &[]);
    assert_ne!(want.0, made(model, &given[..4], &[]).0, "nothing was rounded");
    for layout in [&["--ulysses", "2"][..], &["--cfg", "2"], &["--ranks", "4"]] {
        assert_eq!(made(model, &given, layout), want, "{layout:?}");
    }
    let staged = ["--pipefusion", "2", "--patches", "1"];
    assert_eq!(made(model, &given, &staged), want, "{staged:?}");
}

/// `--ranks` alone finds a layout, and what cannot be is refused with what can.
#[test]
fn layouts_are_found_or_refused() {
    let sizes = ["--height", "32", "--width", "32", "--frames", "5"];
    let model = goldens().join("wan-tiny");
    let model = model.to_str().unwrap();
    let want = made(model, &sizes, &[]);
    assert_eq!(made(model, &sizes, &["--ranks", "6"]), want);
    // Pixels may differ in the last bit of a float, so clips are compared by the law of the engine.
    let (latents, _) = made(model, &sizes, &["--ulysses", "2", "--vae-ranks", "2"]);
    assert_eq!(latents, want.0);
    let cases: [(&[&str], &str); 12] = [
        (&["--ulysses", "0"], "--ulysses: it is 0; choose 1 or more"),
        (&["--pipefusion", "0"], "--pipefusion: it is 0; choose 1 or more"),
        (&["--ulysses", "2", "--timeout", "0"], "choose 1 to 31536000 seconds"),
        (&["--tensor", "2", "--quantize", "int8"], "--tensor: matrices in bytes round a row"),
        (&["--ulysses", "2", "--vae-ranks", "3"], "--vae-ranks: it is 3; a replica has 2 ranks"),
        (&["--ulysses", "2", "--vae-ranks", "2", "--tile-vae"], "--vae-ranks: frames are to be"),
        (&["--ulysses", "3"], "--ulysses: 2 heads per tensor rank are fewer; the nearest is 2"),
        (&["--tensor", "4"], "--tensor: 2 heads cannot be split 4 ways; the nearest is 2"),
        (&["--ring", "100"], "--ring: 100 ranks share a sequence of 8 tokens; the nearest is 8"),
        (&["--ranks", "3", "--cfg", "2"], "--ranks: there are 3 ranks"),
        (&["--ranks", "0"], "--ranks: it is 0; choose 1 to 256"),
        (&["--data", "9999999999999"], "--ranks: it is 9999999999999; choose 1 to 256"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("clip.gif");
    for (layout, want) in cases {
        let words = ["generate", "--model", model, "--prompt", "x", "--output"];
        let output = run(&[&words[..], &[clip.to_str().unwrap()], &sizes, layout].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(want), "{layout:?}: {message}");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// Several processes of a binary that knows no MPI would each make everything: it says what to build.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_launcher_is_told_that_this_binary_knows_no_mpi() {
    let launchers = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ];
    let model = goldens().join("wan-tiny");
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("clip.gif");
    for (rank, size) in launchers {
        let mut command = assert_cmd::Command::cargo_bin("moviola").unwrap();
        command.args(["generate", "--model", model.to_str().unwrap(), "--prompt", "x", "--output"]);
        let output = command.arg(&clip).env(rank, "0").env(size, "2").output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("process 0 of 2") && message.contains("--features mpi"),
            "{message}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
