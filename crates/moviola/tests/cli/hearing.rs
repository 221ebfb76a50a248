//! Models that make video with its sound learn from clips with sound: preprocessed, imported, trained on, exported and
//! used.

use std::fs;
use std::path::{Path, PathBuf};

use data::media::{ClipWriter, Frame, FrameRate, Waveform};
use data::preprocess::Encode;
use data::store::{AUDIO_LATENTS, LATENTS, Sample, TEXT};
use serde_json::Value;

use crate::folder::{goldens, read, run, values};
use crate::preprocess::{Workplace, doctor, encoder, has_ffmpeg, ids};
use crate::training::{recipe, words};

const MODEL: &str = "ltx2-tiny";
const BUCKET: [&str; 2] = ["--bucket", "32x32x5"];

/// A tone of one channel or two, the second an octave higher.
fn tone(rate: u32, channels: usize, seconds: f64) -> Waveform {
    let count = (seconds * f64::from(rate)).round() as usize;
    let value = |at: usize, channel: usize| {
        let hertz = 440.0 * (channel + 1) as f64;
        (0.5 * (std::f64::consts::TAU * hertz * at as f64 / f64::from(rate)).sin()) as f32
    };
    let samples = (0..count).flat_map(|at| (0..channels).map(move |own| value(at, own))).collect();
    Waveform { sample_rate: rate, channels, samples }
}

/// A video of 8 frames a second with its sound in it and a caption beside it.
fn sounding(place: &Workplace, name: &str, frames: usize, sound: &Waveform, caption: &str) {
    let path = place.path("clips").join(name);
    let mut writer = ClipWriter::create(&path, FrameRate::new(8, 1).unwrap()).unwrap();
    for frame in 0..frames {
        let pixels = (0..32 * 32 * 3).map(|at| ((at * 7 + frame * 50) % 256) as f32 / 255.0);
        writer.push(&Frame::new(32, 32, pixels.collect()).unwrap()).unwrap();
    }
    writer.sound(sound).unwrap();
    writer.finish().unwrap();
    fs::write(path.with_extension("txt"), caption).unwrap();
}

/// A clip with a stereo track, one without, and one with a WAV beside it that is longer than both its pieces.
fn clips(place: &Workplace) {
    sounding(place, "a.mp4", 5, &tone(44_100, 2, 0.625), "a red circle moves left");
    place.video("b.mp4", [32, 32], 5, "a silent circle");
    place.video("c.mp4", [32, 32], 12, "a blue square moves up");
    let beside = tone(8000, 1, 1.7);
    beside.write(&place.path("clips/c.wav")).unwrap();
}

fn floats(sample: &Sample, key: &str) -> Vec<f32> {
    sample.tensors[key].clone().convert::<f32>().try_to_vec().unwrap()
}

fn off(ours: &[f32], golden: &[f32]) -> f64 {
    assert_eq!(ours.len(), golden.len());
    let norm = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    norm(&mut ours.iter().zip(golden).map(|(a, b)| a - b)) / norm(&mut golden.iter().copied())
}

/// Every piece of a clip has the sound of its own time, as many latents as `generate` makes for it; a clip without a
/// sound is a sample without one, and done like the others.
#[test]
fn clips_with_sound_become_samples_with_it() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    clips(&place);
    let pieces = [&BUCKET[..], &["--extract", "chunk"]].concat();
    let output = place.preprocess(MODEL, "clips", &pieces);
    assert!(output.status.success(), "{}", words(&output));
    let told = "1 of 3 clips have no sound, and become samples without it: b.mp4";
    assert!(words(&output).contains(told), "{}", words(&output));
    let samples = place.samples();
    assert_eq!(ids(&samples), ["a.mp4", "b.mp4", "c.mp4", "c.mp4@5"]);
    assert!(!samples[1].tensors.contains_key(AUDIO_LATENTS));
    // Five eighths of a second are 15.6 latents.
    for sample in [&samples[0], &samples[2], &samples[3]] {
        assert_eq!(sample.tensors[AUDIO_LATENTS].shape()[..], [2, 16, 4]);
    }
    let mut encoder = encoder(MODEL);
    let beside = Waveform::read(&place.path("clips/c.wav")).unwrap();
    for (sample, first) in [(&samples[2], 0), (&samples[3], 5000)] {
        let own = beside.samples[first..first + 5000].to_vec();
        let own = encoder.sound(&Waveform::mono(8000, own), 0.625).unwrap().unwrap();
        assert_eq!(sample.tensors[AUDIO_LATENTS], own, "from {first}");
    }
    // What AAC makes of a tone is still the tone.
    let mut encoded = |wave: &Waveform| -> Vec<f32> {
        let own = encoder.sound(wave, 0.625).unwrap().unwrap();
        own.convert::<f32>().try_to_vec().unwrap()
    };
    let (whole, silence) = (tone(44_100, 2, 0.625), Waveform::mono(8000, vec![0.0; 5000]));
    let (own, far) = (encoded(&whole), encoded(&silence));
    let found = floats(&samples[0], AUDIO_LATENTS);
    assert!(
        off(&found, &own) < 0.3 * off(&found, &far),
        "{} {}",
        off(&found, &own),
        off(&found, &far)
    );
    // The other trainer encodes a clip without a track again at every run.
    let again = place.encoded(MODEL, "clips", &pieces);
    assert!(again.contains("4 samples (0 encoded now, 4 kept, 0 removed)"), "{again}");
    // Another sound is another sample.
    tone(8000, 1, 0.3).write(&place.path("clips/b.wav")).unwrap();
    let again = place.encoded(MODEL, "clips", &pieces);
    assert!(again.contains("4 samples (1 encoded now, 3 kept, 0 removed)"), "{again}");
    assert_eq!(place.samples()[1].tensors[AUDIO_LATENTS].shape()[..], [2, 16, 4]);
}

/// What is named for a sound and is none leaves its clip out; clips without one are counted. Models that hear nothing
/// look at no sound.
#[test]
fn the_doctor_counts_clips_without_sound() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    clips(&place);
    let model = |name: &str| goldens().join(name).to_str().unwrap().to_owned();
    let look = |name: &str, data: &str| {
        let asked = ["--model", &model(name), BUCKET[0], BUCKET[1]];
        doctor(&place.path(data), &asked)
    };
    let (code, text) = look(MODEL, "clips");
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("\n1 of 3 clips have no sound, and become samples without it: b.mp4\n"),
        "{text}"
    );
    fs::write(place.path("clips/b.wav"), "no sound").unwrap();
    let (code, text) = look(MODEL, "clips");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("skipped b.mp4: its sound ") && text.contains("b.wav: it cannot be read"),
        "{text}"
    );
    assert!(!text.contains("have no sound"), "{text}");
    let (code, text) = look("wan-tiny", "clips");
    assert_eq!(code, Some(0), "{text}");
    let table = "path,caption,audio\nclips/a.mp4,one,\nclips/b.mp4,two,clips/c.mp4\nclips/c.mp4,three,gone.wav\n";
    fs::write(place.path("table.csv"), table).unwrap();
    let (_, text) = look(MODEL, "table.csv");
    assert!(
        text.contains("c.mp4: its sound ") && text.contains("gone.wav: there is no such file"),
        "{text}"
    );
    assert!(
        text.contains("b.mp4: its sound ") && text.contains("c.mp4: there is no sound in it"),
        "{text}"
    );
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push((entry.file_name().into(), fs::read(entry.path()).unwrap())),
        }
    }
    all.sort();
    all
}

/// Sounds are encoded by the ranks that encode their clips, and the dataset is that of one.
#[test]
fn ranks_encode_the_sounds_of_one() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    clips(&place);
    let pieces = [&BUCKET[..], &["--extract", "chunk"]].concat();
    let made = |ranks: &[&str]| {
        let _ = fs::remove_dir_all(place.path("dataset"));
        place.encoded(MODEL, "clips", &[&pieces[..], ranks].concat());
        files(&place.path("dataset"))
    };
    let want = made(&[]);
    assert!(made(&["--ranks", "3"]) == want, "three ranks make another dataset");
}

/// Trains a step on what was encoded.
fn trains(
    place: &Workplace,
    folder: &str,
    strategy: &str,
    more: &[&str],
) -> Result<String, String> {
    let (recipe, model) = (recipe("wan-full.yaml"), goldens().join(MODEL));
    let run_folder = place.text(folder);
    let sets = [
        format!("models.student.from={}", model.to_str().unwrap()),
        format!("data.source={{kind: store, path: {}}}", place.text("dataset")),
        "data.caption_dropout=0".to_owned(),
        "models.student.rate={peak: 0.01, warmup: 0, decay: {kind: constant}}".to_owned(),
        format!("strategy={strategy}"),
        "levels={video: {kind: shifted_logit_normal}}".to_owned(),
        "loop={steps: 2, seed: 1}".to_owned(),
        "checkpoint={every: 2}".to_owned(),
        "callbacks={}".to_owned(),
    ];
    let mut all = vec!["train", recipe.as_str(), "--run", &run_folder];
    sets.iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .for_each(|set| all.extend(["--set", set]));
    let out = run(&all);
    if out.status.success() { Ok(words(&out)) } else { Err(words(&out)) }
}

/// The losses that a run has logged, by name, with how often.
fn logged(place: &Workplace, folder: &str) -> std::collections::BTreeMap<String, usize> {
    let text = fs::read_to_string(place.path(folder).join("metrics.jsonl")).unwrap();
    let mut all = std::collections::BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let losses = line["losses"].as_object().into_iter().flatten();
        losses.for_each(|(name, _)| *all.entry(name.clone()).or_default() += 1);
    }
    all
}

/// Video and sound together, by diffusers' rule for where they meet; a look hears what is made, and the LoRA says by
/// which rule it learnt and makes sound in a folder of its base.
#[test]
fn a_lora_of_both_is_heard_exported_and_used() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    clips(&place);
    place.encoded(MODEL, "clips", &BUCKET);
    let look = "callbacks={validation: {every: 2, prompts: [a red circle moves left], size: [5, 32, 32], steps: 2, \
                guidance: 1}}";
    let learns = "models.student.learns={kind: lora, rank: 2, targets: [to_q, audio_attn1.to_v]}";
    let both = "{name: text_to_video, audio: audio_latents}";
    let told =
        trains(&place, "lora", both, &[look, learns, "models.cross_timestep=other"]).unwrap();
    assert!(
        told.contains(
            "warning: data.source: 1 of 3 samples have no `audio_latents` and teach the video alone"
        ),
        "{told}"
    );
    let made = place.path("lora/validation/00000002/000.mp4");
    let track = data::media::SoundTrack::probe(&made).unwrap();
    assert!(track.is_some(), "a look has a sound");
    let file = place.text("lora.safetensors");
    let out = run(&["export", &place.text("lora"), "--as", "lora", "--output", &file]);
    assert!(out.status.success(), "{}", words(&out));
    let said = folder::metadata(&place.path("lora.safetensors")).unwrap();
    assert_eq!(said.get("cross_timestep").map(String::as_str), Some("other"));
    let picture = place.text("p.png");
    image::RgbImage::from_pixel(32, 32, image::Rgb([200, 30, 30])).save(&picture).unwrap();
    let model = goldens().join(MODEL);
    let latents = |name: &str, more: &[&str]| {
        let (saved, output) =
            (place.text(&format!("{name}.safetensors")), place.text(&format!("{name}.gif")));
        let asked =
            ["generate", "--model", model.to_str().unwrap(), "--prompt", "a red circle moves left"];
        let size = [
            "--height", "32", "--width", "32", "--frames", "5", "--steps", "2", "--image", &picture,
        ];
        let ends = ["--output", &output, "--save-latents", &saved];
        let out = run(&[&asked[..], &size, &ends, more].concat());
        assert!(out.status.success(), "{}", words(&out));
        assert!(place.path(&format!("{name}.wav")).exists(), "{name} has a sound");
        values(&read(&place.path(&format!("{name}.safetensors")))["audio_latents"])
    };
    let own = latents("own", &["--lora", &file]);
    assert_eq!(own, latents("other", &["--lora", &file, "--cross-timestep", "other"]));
    assert_ne!(own, latents("original", &["--lora", &file, "--cross-timestep", "original"]));
}

/// Full training in every way that a sound takes part, and what lacks a sound that must be there is refused.
#[test]
fn every_way_with_sound_is_trained() {
    if !has_ffmpeg() {
        return;
    }
    let place = Workplace::new();
    clips(&place);
    place.encoded(MODEL, "clips", &BUCKET);
    let given = |video: bool, audio: bool| {
        format!(
            "{{name: flexible, video: {{generated: {video}, source: latents}}, audio: {{generated: {audio}, source: \
             audio_latents}}}}"
        )
    };
    let refused = trains(&place, "refused", &given(true, false), &[]).unwrap_err();
    assert!(refused.contains("audio_latents") && refused.contains("b.mp4"), "{refused}");
    assert!(!place.path("refused/checkpoints").exists());
    let alone = trains(&place, "alone", "{name: text_to_video}", &["models.cross_timestep=own"]);
    assert!(alone.unwrap_err().contains("`models.cross_timestep` would do nothing"));
    fs::remove_file(place.path("clips/b.mp4")).unwrap();
    place.encoded(MODEL, "clips", &BUCKET);
    let ways = [
        ("both", given(true, true), ["loss", "loss.audio", "loss.video"].as_slice()),
        ("video", given(true, false), &["loss"]),
        ("sound", given(false, true), &["loss"]),
        ("text", "{name: text_to_audio}".to_owned(), &["loss"]),
    ];
    for (name, strategy, losses) in ways {
        let levels = if name == "both" { "levels.audio={kind: uniform}" } else { "data.batch=1" };
        trains(&place, name, &strategy, &[levels]).unwrap();
        let found = logged(&place, name);
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), losses, "{name}");
        assert!(found.values().all(|count| *count == 2), "{name}: {found:?}");
    }
    let model = place.text("model");
    let out = run(&["export", &place.text("both"), "--output", &model]);
    assert!(out.status.success(), "{}", words(&out));
    let index = fs::read_to_string(place.path("model/model_index.json")).unwrap();
    assert!(index.contains("\"cross_timestep\": \"original\""), "{index}");
    let wave = place.text("tone.wav");
    let asked = ["generate", "--model", &model, "--prompt", "a red circle", "--frames", "5"];
    let size = ["--height", "32", "--width", "32", "--steps", "2", "--output", &wave];
    let out = run(&[&asked[..], &size].concat());
    assert!(out.status.success(), "{}", words(&out));
}

/// What LTX-2's trainer preprocessed: the connectors, which it runs at every step, run once here, and the sounds train.
#[test]
fn an_imported_dataset_with_sound_trains() {
    let place = Workplace::new();
    let (from, model) = (goldens().join("torch/ltx2"), goldens().join(MODEL));
    let (from, model) = (from.to_str().unwrap(), model.to_str().unwrap());
    let dataset = place.text("dataset");
    let out = run(&["import", from, "--model", model, "--output", &dataset]);
    assert!(out.status.success(), "{}", words(&out));
    let samples = place.samples();
    assert_eq!(ids(&samples), ["a", "b"]);
    let golden = read(&goldens().join("ltx2_preprocessed.safetensors"));
    for sample in &samples {
        let id = &sample.origin.id;
        let keys: Vec<&str> = sample.tensors.keys().map(String::as_str).collect();
        let with_sound = [AUDIO_LATENTS, LATENTS, TEXT];
        assert_eq!(keys, if id == "a" { &with_sound[..] } else { &with_sound[1..] });
        for key in keys {
            let off = off(&floats(sample, key), &values(&golden[&format!("{id}.{key}")]));
            // What is read of a caption is kept in the type of its features.
            let most = if key == TEXT { 4e-3 } else { 0.0 };
            assert!(off <= most, "{id}: {key} is off by {off}");
        }
    }
    let told = trains(&place, "run", "{name: text_to_video, audio: audio_latents}", &[]).unwrap();
    assert!(told.contains("1 of 2 samples have no `audio_latents`"), "{told}");
    assert!(logged(&place, "run").contains_key("loss.audio"));
    let other = goldens().join("ltx23-tiny");
    let refused = run(&[
        "import",
        from,
        "--model",
        other.to_str().unwrap(),
        "--output",
        &place.text("other"),
    ]);
    assert!(
        !refused.status.success() && words(&refused).contains("features of a caption"),
        "{}",
        words(&refused)
    );
}
