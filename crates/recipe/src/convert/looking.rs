//! Clips that are made along the way: `validation`.

use serde_json::{Map, Value, json};

use super::foreign::{Foreign, keys, number, part, text, whole};
use crate::document::{Kind, Node};

/// Keys of sampling that a validation has no place for.
const GUIDANCE: [&str; 10] = [
    "audio_cfg_scale",
    "video_stg_scale",
    "audio_stg_scale",
    "stg_scale",
    "stg_mode",
    "stg_blocks",
    "guidance_rescale",
    "video_modality_guidance_scale",
    "audio_modality_guidance_scale",
    "frame_rate",
];

/// `validation`, or none if nothing is made along the way.
pub(super) fn validation(foreign: &mut Foreign) -> Option<Value> {
    foreign.section("validation");
    let every = interval(foreign);
    let mut prompts = Vec::new();
    let mut given = Map::new();
    let samples = foreign.list("validation.samples").unwrap_or_default();
    let first = samples.first().map(conditions).unwrap_or_default();
    for (at, sample) in samples.iter().enumerate() {
        let path = format!("validation.samples[{at}]");
        let Some(prompt) = part(sample, "prompt").and_then(text) else {
            foreign.refuse_at(&sample.place, &path, "its `prompt` is missing");
            continue;
        };
        for key in keys(sample) {
            match key {
                "prompt" | "conditions" => {}
                "video_dims" | "seed" => {
                    let reason = "all clips of a validation have one size and one seed";
                    foreign.leave_out(&format!("{path}.{key}"), reason);
                }
                _ => foreign.refuse_at(&sample.place, &path, &format!("there is no key `{key}`")),
            }
        }
        if values(&conditions(sample)) != values(&first) {
            let reason = "all clips of a validation are given the same, that of the first";
            foreign.leave_out(&path, reason);
            continue;
        }
        prompts.push(json!(prompt));
    }
    for (at, condition) in first.iter().enumerate() {
        let path = format!("validation.samples[0].conditions[{at}]");
        add(foreign, &mut given, &path, condition);
    }
    older(foreign, &mut prompts, &mut given, samples.is_empty());
    let mut validation = settings(foreign);
    let every = every.filter(|_| !prompts.is_empty())?;
    validation.insert("every".to_owned(), json!(every));
    validation.insert("prompts".to_owned(), Value::Array(prompts));
    if !given.is_empty() {
        validation.insert("given".to_owned(), Value::Object(given));
    }
    Some(Value::Object(validation))
}

/// After how many steps; none if it is written as nothing.
fn interval(foreign: &mut Foreign) -> Option<u64> {
    match foreign.has("validation.interval") {
        true => foreign.whole("validation.interval"),
        false => Some(100),
    }
}

/// Size, seed, steps and guidance.
fn settings(foreign: &mut Foreign) -> Map<String, Value> {
    let mut made = Map::new();
    let size = foreign.list("validation.video_dims").map(|own| own.iter().map(whole).collect());
    let size: Option<Vec<u64>> = size.unwrap_or(Some(vec![960, 544, 89]));
    match size.as_deref() {
        Some([width, height, frames]) => {
            made.insert("size".to_owned(), json!([frames, height, width]));
        }
        _ => foreign.refuse("validation.video_dims", "it is width, height and frames"),
    }
    made.insert("seed".to_owned(), json!(foreign.whole("validation.seed").unwrap_or(42)));
    let steps = foreign.whole("validation.inference_steps").unwrap_or(30);
    made.insert("steps".to_owned(), json!(steps));
    let both = foreign.number("validation.guidance_scale");
    let guidance = foreign.number("validation.video_cfg_scale").or(both).unwrap_or(3.0);
    made.insert("guidance".to_owned(), json!(guidance));
    match foreign.text("validation.negative_prompt") {
        Some(text) => {
            made.insert("negative".to_owned(), json!(text));
        }
        None => foreign.leave_out(
            "validation.negative_prompt",
            "it is not written, and the other trainer's own is not taken over: it is empty",
        ),
    }
    let guided = GUIDANCE.map(|key| format!("validation.{key}"));
    let guided: Vec<&str> = guided.iter().map(String::as_str).collect();
    foreign.leave_out_if_written(&guided, "validation samples as the model does by itself");
    let made_too = ["validation.generate_audio", "validation.generate_video"];
    foreign.leave_out_if_written(&made_too, "validation makes what the model makes");
    if foreign.truth("validation.skip_initial_validation") == Some(true) {
        let reason = "validation also looks before the first step";
        foreign.leave_out("validation.skip_initial_validation", reason);
    }
    made
}

/// The keys that were there before `samples`.
fn older(
    foreign: &mut Foreign,
    prompts: &mut Vec<Value>,
    given: &mut Map<String, Value>,
    is_used: bool,
) {
    let older = foreign.list("validation.prompts").unwrap_or_default();
    let images = foreign.list("validation.images").unwrap_or_default();
    let references = foreign.list("validation.reference_videos").unwrap_or_default();
    foreign.leave_out_if_written(
        &["validation.reference_downscale_factor", "validation.include_reference_in_output"],
        "a reference has the size that its model was trained with, and is not shown beside",
    );
    if !is_used {
        return;
    }
    let lists = [("image", "images", images), ("reference", "reference_videos", references)];
    for (key, name, list) in lists {
        let Some(file) = list.first().and_then(text) else { continue };
        if list.iter().any(|own| text(own).as_deref() != Some(file.as_str())) {
            let reason = "all clips of a validation are given the same, that of the first prompt";
            foreign.leave_out(&format!("validation.{name}"), reason);
        }
        given.insert(key.to_owned(), json!(file));
    }
    prompts.extend(older.iter().filter_map(text).map(Value::String));
}

fn conditions(sample: &Node) -> Vec<Node> {
    match part(sample, "conditions").map(|own| &own.kind) {
        Some(Kind::List(items)) => items.clone(),
        _ => Vec::new(),
    }
}

fn values(nodes: &[Node]) -> Vec<Value> {
    nodes.iter().map(Node::value).collect()
}

/// What a clip is given.
fn add(foreign: &mut Foreign, given: &mut Map<String, Value>, path: &str, node: &Node) {
    let kind = part(node, "type").and_then(text).unwrap_or_default();
    let file = |key: &str| part(node, key).and_then(text);
    let mut give = |key: &str, file: Option<String>| match file {
        Some(file) => {
            given.insert(key.to_owned(), json!(file));
            None
        }
        None => Some("it names no file that is given here"),
    };
    let left = match kind.as_str() {
        "first_frame" => give("image", file("image_or_video")),
        "prefix" => give("video_prefix", file("video")),
        "reference" => give("reference", file("video")),
        "video_to_audio" => give("video", file("video")),
        "audio_to_video" => give("audio", file("audio")),
        "mask" => Some(
            "such masks are white where the clip is given, and ours where it is made: invert it, and write it \
             to `given.mask`",
        ),
        "suffix" | "spatial_crop" => Some("validation has no such condition"),
        _ => {
            foreign.refuse_at(&node.place, path, "its `type` is unknown");
            return;
        }
    };
    if let Some(reason) = left {
        foreign.leave_out(path, reason);
    }
    let is_one = |key: &str| part(node, key).and_then(number).is_none_or(|own| own == 1.0);
    for key in ["num_frames", "duration", "downscale_factor", "temporal_scale_factor"] {
        if left.is_none() && part(node, key).is_some() && !(key.ends_with("factor") && is_one(key))
        {
            let reason =
                "the file is taken as it is, and a reference in the size that was trained with";
            foreign.leave_out(&format!("{path}.{key}"), reason);
        }
    }
}
