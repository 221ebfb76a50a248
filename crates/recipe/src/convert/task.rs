//! What is generated given what: `training_strategy`.

use serde_json::{Value, json};

use super::foreign::{Foreign, keys, number, part, text, whole};
use crate::document::{Kind, Node};

const SECTION: &str = "training_strategy";

/// Folders of preprocessed tensors, and the sources that they are imported as.
const SOURCES: [(&str, &str); 4] = [
    ("latents", "latents"),
    ("audio_latents", "audio_latents"),
    ("reference_latents", "ref_latents"),
    ("video_masks", "mask"),
];

/// The strategy.
pub(super) fn strategy(foreign: &mut Foreign) -> Value {
    foreign.section(SECTION);
    let name = foreign.text(&format!("{SECTION}.name"));
    match name.as_deref().unwrap_or("text_to_video") {
        "text_to_video" => text_to_video(foreign),
        "video_to_video" => video_to_video(foreign),
        "flexible" => {
            let [video, audio] = ["video", "audio"].map(|name| modality(foreign, name));
            let mut strategy = json!({ "name": "flexible" });
            for (name, own) in [("video", video), ("audio", audio)] {
                if let Some(own) = own {
                    strategy[name] = own;
                }
            }
            strategy
        }
        _ => {
            let reason = "it is `text_to_video`, `video_to_video` or `flexible`";
            foreign.refuse(&format!("{SECTION}.name"), reason);
            foreign.know(SECTION);
            Value::Null
        }
    }
}

fn text_to_video(foreign: &mut Foreign) -> Value {
    let key = |name: &str| format!("{SECTION}.{name}");
    let first = foreign.number(&key("first_frame_conditioning_p")).unwrap_or(0.1);
    let sounds = foreign.truth(&key("with_audio")) == Some(true);
    let folder = foreign.text(&key("audio_latents_dir"));
    if !sounds {
        return json!({ "name": "text_to_video", "first_frame_probability": first });
    }
    let folder = folder.unwrap_or_else(|| "audio_latents".to_owned());
    let source = source(foreign, &key("audio_latents_dir"), &folder);
    let reason =
        "a video and its sound draw their noise levels each for itself here; there they shared one";
    foreign.leave_out(&key("name"), reason);
    let conditions = json!([{ "type": "first_frame", "probability": first }]);
    json!({
        "name": "flexible",
        "video": { "generated": true, "source": "latents", "conditions": conditions },
        "audio": { "generated": true, "source": source },
    })
}

fn video_to_video(foreign: &mut Foreign) -> Value {
    let key = |name: &str| format!("{SECTION}.{name}");
    let first = foreign.number(&key("first_frame_conditioning_p")).unwrap_or(0.1);
    let folder = foreign.text(&key("reference_latents_dir"));
    let folder = folder.unwrap_or_else(|| "reference_latents".to_owned());
    let reference = source(foreign, &key("reference_latents_dir"), &folder);
    json!({ "name": "video_to_video", "first_frame_probability": first, "reference": reference })
}

/// The source that a folder is imported as.
fn source(foreign: &mut Foreign, path: &str, folder: &str) -> Value {
    match SOURCES.iter().find(|(own, _)| *own == folder) {
        Some((_, source)) => json!(source),
        None => {
            let known: Vec<String> = SOURCES.iter().map(|(own, _)| format!("`{own}`")).collect();
            let reason =
                format!("`moviola import` does not read `{folder}`, but {}", known.join(", "));
            foreign.refuse(path, &reason);
            Value::Null
        }
    }
}

/// `video` or `audio` of the flexible strategy.
fn modality(foreign: &mut Foreign, name: &str) -> Option<Value> {
    let key = |part: &str| format!("{SECTION}.{name}.{part}");
    if !foreign.has(&format!("{SECTION}.{name}"))
        || foreign.get(&format!("{SECTION}.{name}")).is_none()
    {
        return None;
    }
    let generated = foreign.truth(&key("is_generated"));
    if generated.is_none() {
        foreign.refuse(&key("is_generated"), "it is missing");
    }
    let folder = foreign.text(&key("latents_dir"));
    let own = match folder {
        Some(folder) => source(foreign, &key("latents_dir"), &folder),
        None => {
            foreign.refuse(&key("latents_dir"), "it is missing");
            Value::Null
        }
    };
    let mut modality = json!({ "generated": generated, "source": own });
    let conditions = foreign.list(&key("conditions")).unwrap_or_default();
    let conditions: Vec<Value> = conditions
        .iter()
        .enumerate()
        .map(|(at, node)| condition(foreign, &format!("{}[{at}]", key("conditions")), node))
        .collect();
    // There they are passed over; here they would be a mistake.
    match (generated, conditions.is_empty()) {
        (_, true) => {}
        (Some(false), false) => {
            let reason = "what is given is known whole, so its conditions do nothing";
            foreign.leave_out(&key("conditions"), reason);
        }
        _ => modality["conditions"] = Value::Array(conditions),
    }
    Some(modality)
}

/// The keys that a condition has beside its type and probability.
const PARTS: [(&str, &[&str]); 6] = [
    ("first_frame", &[]),
    ("prefix", &["temporal_boundary"]),
    ("suffix", &["temporal_boundary"]),
    ("spatial_crop", &["spatial_region"]),
    ("mask", &["mask_dir"]),
    ("reference", &["latents_dir"]),
];

fn condition(foreign: &mut Foreign, path: &str, node: &Node) -> Value {
    let kind = part(node, "type").and_then(text).unwrap_or_default();
    let Some((_, parts)) = PARTS.iter().find(|(own, _)| *own == kind) else {
        let names: Vec<&str> = PARTS.iter().map(|(own, _)| *own).collect();
        foreign.refuse_at(&node.place, path, &format!("its `type` is one of {}", names.join(", ")));
        return Value::Null;
    };
    for key in keys(node) {
        if !["type", "probability"].contains(&key) && !parts.contains(&key) {
            foreign.refuse_at(&node.place, path, &format!("there is no key `{key}` in `{kind}`"));
        }
    }
    let probability = match part(node, "probability") {
        None => 1.0,
        Some(own) => number(own).unwrap_or(f64::NAN),
    };
    if !(0.0..=1.0).contains(&probability) {
        foreign.refuse_at(&node.place, path, "its `probability` lies between 0 and 1");
        return Value::Null;
    }
    let Some(mut made) = known(foreign, path, node, &kind) else {
        let reason = format!("its {} is missing, or of another type", parts.join(", "));
        foreign.refuse_at(&node.place, path, &reason);
        return Value::Null;
    };
    made["probability"] = json!(probability);
    made
}

/// What a condition says is known; none if a part of it is missing.
fn known(foreign: &mut Foreign, path: &str, node: &Node, kind: &str) -> Option<Value> {
    let folder = |key: &str| part(node, key).and_then(text);
    Some(match kind {
        "first_frame" => json!({ "type": "first_frame" }),
        "prefix" | "suffix" => {
            let frames = part(node, "temporal_boundary").and_then(whole)?;
            json!({ "type": kind, "frames": frames })
        }
        "spatial_crop" => {
            let Kind::List(sides) = &part(node, "spatial_region")?.kind else { return None };
            let sides: Option<Vec<u64>> = sides.iter().map(whole).collect();
            let [top, left, bottom, right] = sides?[..] else { return None };
            json!({ "type": "rectangle", "rows": [top, bottom], "columns": [left, right] })
        }
        "mask" => {
            let folder = folder("mask_dir")?;
            let source = source(foreign, &format!("{path}.mask_dir"), &folder);
            json!({ "type": "mask", "source": source })
        }
        _ => {
            let folder = folder("latents_dir")?;
            let source = source(foreign, &format!("{path}.latents_dir"), &folder);
            json!({ "type": "reference", "source": source })
        }
    })
}
