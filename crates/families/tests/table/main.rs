//! Laws of the table: what a family says of its layers is true of its networks.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use families::{Condition, Description, EntersAs, FAMILIES, Record, describe};
use folder::ModelFolder;
use nn::Store;
use serde_json::json;

fn goldens() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens"))
}

/// Every golden folder, and a new model of each family that can begin anew.
fn all() -> Vec<Description> {
    let folders = std::fs::read_dir(goldens()).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.join("model_index.json").is_file());
    let golden = folders.map(|path| describe(&ModelFolder::open(&path).unwrap()).unwrap());
    let new = FAMILIES.into_iter().filter_map(|family| {
        let sizes = json!({ "video_channels": 384, "audio_channels": 250, "text_width": 64 });
        Some((family.scratch.as_ref()?.make)(family, &sizes).unwrap().description)
    });
    golden.chain(new).collect()
}

/// The layers of a model that have a matrix.
fn layers(model: &Description) -> BTreeSet<String> {
    let fill = |_: &str, shape: &[usize]| {
        Tensor::<1>::zeros([shape.iter().product::<usize>()], &Device::flex())
    };
    let network = &model.transformers[0].network;
    let store = Store::declared(|weights| network.declare(weights), fill).unwrap();
    let names = store.iter().filter_map(|(name, _)| name.strip_suffix(".weight"));
    names.map(str::to_owned).collect()
}

#[test]
fn every_family_has_a_model_here_and_splits_layers_that_it_has() {
    let models = all();
    for family in FAMILIES {
        let own = models.iter().filter(|model| model.family.name == family.name);
        let layers: BTreeSet<String> = own.flat_map(layers).collect();
        assert!(!layers.is_empty(), "there is no golden folder of {}", family.name);
        let has = |end: &str| {
            layers.iter().any(|layer| layer == end || layer.ends_with(&format!(".{end}")))
        };
        assert!(!family.splits.is_empty(), "{}", family.name);
        for (end, _) in family.splits {
            assert!(has(end), "no layer of {} ends in {end}", family.name);
        }
        for kept in family.kept {
            let is_kept = |layer: &String| layer.split('.').any(|module| module == *kept);
            assert!(layers.iter().any(is_kept), "{} has no module {kept}", family.name);
        }
    }
}

/// What a LoRA was trained with as clean tokens is of no use to a model that has channels for it.
#[test]
fn a_record_gives_conditions_to_models_that_have_room_for_them() {
    let record =
        Record { conditions: vec![Condition::Reference, Condition::Image], ..Record::default() };
    let open = |name: &str| describe(&ModelFolder::open(&goldens().join(name)).unwrap()).unwrap();
    let text = open("wan-tiny").with_record(record.clone());
    assert_eq!(text.conditions.enters(Condition::Reference), Some(EntersAs::CleanTokens));
    let channels = open("wan-tiny-i2v").with_record(record);
    assert_eq!(channels.conditions.enters(Condition::Reference), None);
    assert_eq!(channels.conditions.enters(Condition::Image), Some(EntersAs::Channels));
}

/// Pictures of later frames stand beside a clip until a training has put them into their places.
#[test]
fn what_was_trained_in_its_place_stays_there() {
    let model = describe(&ModelFolder::open(&goldens().join("ltx2-tiny")).unwrap()).unwrap();
    let enters = |model: &Description| {
        [Condition::Keyframe, Condition::LastImage].map(|own| model.conditions.enters(own))
    };
    assert_eq!(enters(&model), [Some(EntersAs::TokensBeside); 2]);
    let record = Record { conditions: vec![Condition::Keyframe], ..Record::default() };
    let trained = model.with_record(record);
    assert_eq!(enters(&trained), [Some(EntersAs::CleanTokens), Some(EntersAs::TokensBeside)]);
}

/// Factors are those of the codec's levels, which the transformer must agree with; a config of another form is refused
/// and never guessed at.
#[test]
fn the_factors_of_a_codec_are_never_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let model = goldens().join("ltx2-tiny");
    let described = |component: &str, key: &str, value: serde_json::Value| {
        for part in ["scheduler", "transformer", "vae", "audio_vae", "vocoder", "."] {
            let names = ["config.json", "scheduler_config.json", "model_index.json"];
            for name in names.iter().filter(|name| model.join(part).join(name).is_file()) {
                std::fs::create_dir_all(folder.path().join(part)).unwrap();
                let text = std::fs::read_to_string(model.join(part).join(name)).unwrap();
                let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
                if part == component {
                    config[key] = value.clone();
                }
                std::fs::write(folder.path().join(part).join(name), config.to_string()).unwrap();
            }
        }
        describe(&ModelFolder::open(folder.path()).unwrap())
    };
    let same = described("transformer", "vae_scale_factors", json!([4, 16, 16])).unwrap();
    assert_eq!(same.geometry.factors, [4, 16, 16]);
    let other = described("transformer", "vae_scale_factors", json!([8, 32, 32])).err().unwrap();
    let other = other.to_string();
    assert!(other.contains("vae_scale_factors of transformer (frames) is 8"), "{other}");
    let nested = described("vae", "encoder", json!({ "blocks": [] })).err().unwrap().to_string();
    assert!(nested.contains("`encoder`"), "{nested}");
}

/// What a description says of a row of the table in `docs/families.md`. What the folder was seen to do stands between these columns;
/// the tests of the command try it.
fn row(name: &str, model: &Description) -> [String; 4] {
    let experts = match model.transformers.len() {
        1 => "one transformer".to_owned(),
        count => format!("{count} experts"),
    };
    let taken = model.conditions.taken().map(|own| {
        let way = match model.conditions.enters(own) {
            Some(EntersAs::Channels) => "as channels",
            Some(EntersAs::TokensBeside) => "as tokens beside",
            _ => "as clean tokens",
        };
        format!("{own} ({way})")
    });
    let mut taken: Vec<String> = taken.collect();
    if model.image_tokens.is_some() {
        taken.push("image tokens".to_owned());
    }
    let taken = if taken.is_empty() { "none of its own".to_owned() } else { taken.join(", ") };
    [model.family.title.to_owned(), format!("`{name}`"), experts, taken]
}

/// The table of families in the documentation is the table of families.
#[test]
fn the_documentation_lists_every_kind_of_folder() {
    let page = goldens().join("../docs/families.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(goldens()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.join("model_index.json").is_file());
    folders.sort();
    let golden = folders.iter().map(|path| {
        let model = describe(&ModelFolder::open(path).unwrap()).unwrap();
        row(path.file_name().unwrap().to_str().unwrap(), &model)
    });
    let sizes = json!({ "video_channels": 384, "text_width": 64 });
    let new = FAMILIES.into_iter().filter_map(|family| {
        let made = (family.scratch.as_ref()?.make)(family, &sizes).unwrap();
        Some(row("new", &made.description))
    });
    let wanted: Vec<[String; 4]> = golden.chain(new).collect();
    let rows = page.lines().filter(|line| line.contains("| `") && !line.contains("`generate`"));
    let cells = rows.map(|line| line.trim_matches('|').split('|').map(str::trim));
    let found: Vec<[String; 4]> = cells
        .map(|cells| {
            let cells: Vec<&str> = cells.collect();
            assert_eq!(cells.len(), 8, "{cells:?}");
            [cells[0], cells[1], cells[2], cells[7]].map(str::to_owned)
        })
        .collect();
    assert_eq!(found, wanted);
}
