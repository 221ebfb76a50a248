//! A power cut at any moment: what is there is whole, and the same command ends as if nothing had been.

use std::thread;
use std::time::Duration;

use crate::place::{Place, golden};
use crate::process::{Run, moments, text};
use crate::training::train;

/// Kills the command after each of many fractions of the time that it takes, and looks at what it left.
fn killed<'a>(run: &dyn Fn() -> Run, whole: Duration, look: &mut (dyn FnMut(u32) + 'a)) {
    let moments = moments().unwrap_or(4);
    for moment in 0..moments {
        let mut running = run().begin();
        thread::sleep(whole * (2 * moment + 1) / (2 * moments));
        running.kill();
        running.ended();
        look(moment);
    }
}

#[test]
fn a_dataset_that_was_killed_is_made_again_to_the_byte() {
    let place = Place::new();
    for at in 0..12 {
        place.picture(&format!("clips/{at:02}.png"), [32, 32], at);
    }
    let (model, clips) = (golden("pixart-tiny"), place.text("clips"));
    let into = |dataset: &str| {
        let dataset = place.text(dataset);
        let words =
            ["preprocess", "--bucket", "32x32x1", "--threads", "1", "--model", text(&model)];
        Run::of([&words[..], &["--data", &clips, "--output", &dataset]].concat())
    };
    let whole = into("whole").ended();
    whole.ended_with(0, &["12 samples (12 encoded now"]);
    let expected = place.files("whole");
    killed(&|| into("killed"), whole.took, &mut |moment| {
        into("killed").ended().ended_with(0, &["12 samples"]);
        assert!(place.files("killed") == expected, "{moment}: {:?}", place.names("killed"));
        std::fs::remove_dir_all(place.path("killed")).unwrap();
    });
}

/// Every state that a kill before the first shard leaves, made by hand.
#[test]
fn a_dataset_that_was_hardly_begun_goes_on() {
    let place = Place::new();
    place.picture("clips/a.png", [32, 32], 1);
    let (model, clips) = (golden("pixart-tiny"), place.text("clips"));
    let into = |dataset: &str| {
        let dataset = place.text(dataset);
        let words = ["preprocess", "--bucket", "32x32x1", "--model", text(&model)];
        Run::of([&words[..], &["--data", &clips, "--output", &dataset]].concat()).ended()
    };
    into("whole").ended_with(0, &["1 samples"]);
    let expected = place.files("whole");
    let header = std::fs::read(place.path("whole/dataset.json")).unwrap();
    let states: [&[(&str, &[u8])]; 5] = [
        &[("shards/.00000.safetensors.4711.abcdef.part", b"half a shard")],
        &[("writer.lock", b""), (".dataset.json.4711.abcdef.part", b"{")],
        &[("writer.lock", b""), (".dataset.json.abcdef.part", b"")],
        &[("dataset.json", &header), (".null.safetensors.abcdef.part", b"x")],
        &[("dataset.json", &header), ("index.jsonl", b"{\"shard\": {")],
    ];
    for (at, files) in states.into_iter().enumerate() {
        let own = format!("state-{at}");
        for (name, bytes) in files {
            place.write(&format!("{own}/{name}"), bytes);
        }
        std::fs::create_dir_all(place.path(&own).join("shards")).unwrap();
        into(&own).ended_with(0, &["1 samples (1 encoded now"]);
        assert!(place.files(&own) == expected, "{at}: {:?}", place.names(&own));
    }
}

/// What stands at the place of an output is whole, or nothing does.
#[test]
fn a_clip_that_was_killed_is_whole_or_not_there() {
    let place = Place::new();
    let model = golden("pixart-tiny");
    let into = |folder: &str| {
        let output = place.text(&format!("{folder}/out.png"));
        let words = ["generate", "--model", text(&model), "--prompt", "a fox", "--steps", "4"];
        Run::of(
            [&words[..], &["--seed", "3", "--height", "64", "--width", "64", "--output", &output]]
                .concat(),
        )
    };
    std::fs::create_dir(place.path("whole")).unwrap();
    let whole = into("whole").ended();
    whole.ended_with(0, &["out.png"]);
    let clip = std::fs::read(place.path("whole/out.png")).unwrap();
    killed(
        &|| {
            std::fs::create_dir_all(place.path("killed")).unwrap();
            into("killed")
        },
        whole.took,
        &mut |moment| {
            let own = |name: &str| std::fs::read(place.path("killed").join(name)).ok();
            assert!(own("out.png").is_none_or(|own| own == clip), "{moment}");
            let record = own("out.png.json");
            assert!(
                record.is_none_or(|own| serde_json::from_slice::<serde_json::Value>(&own).is_ok())
            );
            for name in ["out.png", "out.png.json"] {
                // Whoever makes it again removes what is there.
                let _ = std::fs::remove_file(place.path("killed").join(name));
            }
            into("killed").ended().ended_with(0, &["out.png"]);
            assert!(own("out.png").unwrap() == clip, "{moment}");
            std::fs::remove_dir_all(place.path("killed")).unwrap();
        },
    );
}

/// The same of an exported folder, all of which appears at once.
#[test]
fn an_export_that_was_killed_is_whole_or_not_there() {
    let place = Place::new();
    train(&place, &["loop.steps=1"]).ended().ended_with(0, &[]);
    let run = place.text("run");
    let into = |folder: &str| Run::of(["export", &run, "--output", &place.text(folder)]);
    let whole = into("whole").ended();
    whole.ended_with(0, &[]);
    let expected = place.files("whole");
    killed(&|| into("killed"), whole.took, &mut |moment| {
        if place.path("killed").exists() {
            assert!(place.files("killed") == expected, "{moment}: {:?}", place.names("killed"));
            std::fs::remove_dir_all(place.path("killed")).unwrap();
        }
        into("killed").ended().ended_with(0, &[]);
        assert!(place.files("killed") == expected, "{moment}");
        std::fs::remove_dir_all(place.path("killed")).unwrap();
    });
}
