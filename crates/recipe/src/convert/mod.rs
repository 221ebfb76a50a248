//! Configs of LTX-2's trainer as recipes.
//!
//! Every key is mapped, or left out by name because it changes nothing of what is learnt, or refused by name. What is not
//! written there has that trainer's default, which is written here wherever ours is another.

mod foreign;
mod looking;
mod schedule;
mod task;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use self::foreign::Foreign;
use crate::document::Node;
use crate::error::{Error, Result};
use crate::schema::Recipe;

/// A config that has become a recipe.
pub struct Converted {
    /// The recipe.
    pub recipe: Recipe,
    /// The same as a file, with what was left out before it.
    pub yaml: String,
    /// Keys that were left out, and why.
    pub left_out: Vec<(String, String)>,
}

/// Where things are that another trainer keeps elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The model's folder or hub id; where the file of its weights lies if it is not said.
    pub model: Option<String>,
    /// The imported dataset; beside the preprocessed folder if it is not said.
    pub data: Option<PathBuf>,
}

/// Sections of a recipe, in the order that they are read in.
type Sections = Vec<(&'static str, Value)>;

/// What stands behind the name of a preprocessed folder for the dataset that it was imported to.
const IMPORTED: &str = "-dataset";

/// Reads a config and makes a recipe of it.
///
/// # Errors
/// It cannot be read, or a key of it cannot be converted; each is named.
pub fn convert(path: &Path, places: &Places) -> Result<Converted> {
    let mut foreign = Foreign::new(Node::read(path)?);
    let mut sections: Sections = Vec::new();
    let student = student(&mut foreign, places);
    sections.push(("models", json!({ "student": student })));
    sections.push(("method", json!({ "name": "finetune" })));
    sections.push(("strategy", task::strategy(&mut foreign)));
    sections.push(("levels", levels(&mut foreign)));
    sections.push(("data", data(&mut foreign, places)));
    sections.push(("loop", run(&mut foreign)));
    sections.push(("checkpoint", checkpoint(&mut foreign)));
    if let Some(validation) = looking::validation(&mut foreign) {
        sections.push(("callbacks", json!({ "validation": validation })));
    }
    elsewhere(&mut foreign);
    foreign.refuse_unknown();
    Error::unless_none(std::mem::take(&mut foreign.refused))?;
    let yaml = written(path, &sections, &foreign.left_out)?;
    let recipe = Recipe::parse(&yaml, Path::new("the converted recipe"), &[])?;
    Ok(Converted { recipe, yaml, left_out: foreign.left_out })
}

/// The recipe's file.
fn written(path: &Path, sections: &Sections, left_out: &[(String, String)]) -> Result<String> {
    let failed = |err| Error::Recipe(format!("the recipe cannot be written: {err}"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!("# Converted from {}.\n", one_line(&name));
    for (key, reason) in left_out {
        text += &format!("# Left out: {}: {}\n", one_line(key), one_line(reason));
    }
    for (name, value) in sections {
        let section = Map::from_iter([((*name).to_owned(), value.clone())]);
        let section = serde_saphyr::to_string(&Value::Object(section)).map_err(failed)?;
        text += &format!("\n{}\n", section.trim_end());
    }
    Ok(text)
}

/// A text that cannot end the comment it stands in.
fn one_line(text: &str) -> String {
    text.chars().map(|own| if own.is_control() { ' ' } else { own }).collect()
}

/// `model`, `lora` and how fast is learnt.
fn student(foreign: &mut Foreign, places: &Places) -> Value {
    let mut student = Map::new();
    let file = foreign.text("model.model_path");
    if file.is_none() {
        foreign.refuse("model.model_path", "it is missing, and says what is trained");
    }
    let file = file.unwrap_or_default();
    let is_file = file.ends_with(".safetensors");
    let parent = Path::new(&file).parent().map(|own| own.to_string_lossy().into_owned());
    let folder = match is_file {
        true => parent.filter(|own| !own.is_empty()).unwrap_or_else(|| ".".to_owned()),
        false => file.clone(),
    };
    student.insert("from".to_owned(), json!(places.model.clone().unwrap_or(folder)));
    if is_file {
        student.insert("weights".to_owned(), json!(file));
    }
    foreign.leave_out_if_written(
        &["model.text_encoder_path", "model.video_vae_path", "model.audio_vae_path"],
        "encoders and VAEs are those of the folder `models.student.from`",
    );
    let mode = foreign.text("model.training_mode").unwrap_or_else(|| "lora".to_owned());
    match mode.as_str() {
        "lora" => {
            student.insert("learns".to_owned(), lora(foreign));
        }
        "full" => {
            let begun = foreign.text("model.load_checkpoint");
            begun.map(|file| student.insert("weights".to_owned(), json!(file)));
            foreign.leave_out_if_written(&["lora"], "the whole model is trained");
            foreign.know("lora");
        }
        _ => foreign.refuse("model.training_mode", "it is `lora` or `full`"),
    }
    let kind = foreign.text("optimization.optimizer_type").unwrap_or_else(|| "adamw".to_owned());
    if !["adamw", "adamw8bit"].contains(&kind.as_str()) {
        foreign.refuse("optimization.optimizer_type", "it is `adamw` or `adamw8bit` there");
    }
    student.insert("optimizer".to_owned(), json!({ "kind": kind }));
    student.insert("rate".to_owned(), schedule::rate(foreign));
    let recomputes = foreign.truth("optimization.enable_gradient_checkpointing") == Some(true);
    let kind = if recomputes { "per-block" } else { "never" };
    student.insert("recompute".to_owned(), json!({ "kind": kind }));
    Value::Object(student)
}

/// `lora`, and the file that it goes on from.
fn lora(foreign: &mut Foreign) -> Value {
    if !foreign.has("lora") {
        foreign.refuse("lora", "it is missing, and `training_mode: lora` needs it");
    }
    let rank = foreign.whole("lora.rank").unwrap_or(64);
    let alpha = foreign.number("lora.alpha").unwrap_or(64.0);
    let dropout = foreign.number("lora.dropout").unwrap_or(0.0);
    let targets = match foreign.list("lora.target_modules") {
        None => vec!["to_k".to_owned(), "to_q".into(), "to_v".into(), "to_out.0".into()],
        Some(items) => items.iter().filter_map(foreign::text).collect(),
    };
    let mut learns = json!({ "kind": "lora", "rank": rank, "alpha": alpha, "dropout": dropout, "targets": targets });
    if let Some(from) = foreign.text("model.load_checkpoint") {
        if !from.ends_with(".safetensors") {
            foreign.refuse("model.load_checkpoint", "it is a folder; name the file in it");
        }
        learns["from"] = json!(from);
    }
    learns
}

/// `flow_matching`.
fn levels(foreign: &mut Foreign) -> Value {
    let mode = foreign.text("flow_matching.timestep_sampling_mode");
    let parameters = "flow_matching.timestep_sampling_params";
    foreign.section(parameters);
    let mut number = |key: &str, own: f64| {
        let path = format!("{parameters}.{key}");
        foreign.number(&path).unwrap_or(own)
    };
    let video = match mode.as_deref().unwrap_or("shifted_logit_normal") {
        "uniform" => json!({
            "kind": "uniform",
            "lowest": number("min_value", 0.0),
            "highest": number("max_value", 1.0),
        }),
        "shifted_logit_normal" => json!({
            "kind": "shifted_logit_normal",
            "deviation": number("std", 1.0),
            "floor": number("eps", 1e-3),
            "uniform": number("uniform_prob", 0.1),
        }),
        _ => {
            let reason = "it is `uniform` or `shifted_logit_normal`";
            foreign.refuse("flow_matching.timestep_sampling_mode", reason);
            foreign.know(parameters);
            Value::Null
        }
    };
    json!({ "video": video })
}

/// `data`.
fn data(foreign: &mut Foreign, places: &Places) -> Value {
    let root = foreign.text("data.preprocessed_data_root");
    let path = match (&places.data, root) {
        (Some(path), _) => path.to_string_lossy().into_owned(),
        (None, Some(root)) => {
            let path = format!("{}{IMPORTED}", root.trim_end_matches('/'));
            let reason = format!(
                "the dataset is `{path}`; make it with `moviola import {root} --model MODEL --output {path}`"
            );
            foreign.leave_out("data.preprocessed_data_root", &reason);
            path
        }
        (None, None) => {
            let reason = "it is missing, and says what is learnt from";
            foreign.refuse("data.preprocessed_data_root", reason);
            String::new()
        }
    };
    json!({
        "source": { "kind": "store", "path": path },
        "batch": foreign.whole("optimization.batch_size").unwrap_or(2),
        "prefetch": foreign.whole("data.num_dataloader_workers").unwrap_or(2),
    })
}

/// `optimization` and `seed`, as far as they are about the loop.
fn run(foreign: &mut Foreign) -> Value {
    let clip = foreign.number("optimization.max_grad_norm").unwrap_or(1.0);
    json!({
        "steps": schedule::steps(foreign),
        "accumulation": foreign.whole("optimization.gradient_accumulation_steps").unwrap_or(1),
        "seed": foreign.whole("seed").unwrap_or(42),
        "clip": if clip > 0.0 { json!(clip) } else { Value::Null },
    })
}

/// `checkpoints`.
fn checkpoint(foreign: &mut Foreign) -> Value {
    let every = foreign.whole("checkpoints.interval").unwrap_or(0);
    let kept = foreign.number("checkpoints.keep_last_n").unwrap_or(1.0);
    foreign.leave_out_if_written(
        &["checkpoints.precision"],
        "checkpoints keep what learns in f32; `moviola export --dtype bf16` rounds",
    );
    foreign.leave_out_if_written(
        &["checkpoints.save_training_state"],
        "a checkpoint always holds all that a run remembers",
    );
    if foreign.truth("checkpoints.no_resume") == Some(true) {
        foreign.leave_out("checkpoints.no_resume", "a run in a new folder begins anew");
    }
    // There, 0 and -1 keep all.
    match kept >= 1.0 {
        true => json!({ "every": every, "keep_last": kept as u64 }),
        false => json!({ "every": every, "keep_every": every }),
    }
}

/// What says nothing of what is learnt, or is not done here.
fn elsewhere(foreign: &mut Foreign) {
    match foreign.text("acceleration.mixed_precision_mode").as_deref() {
        None | Some("no") => {}
        Some("bf16") => {
            let reason = "training computes in f32, whatever the weights are stored in";
            foreign.leave_out("acceleration.mixed_precision_mode", reason);
        }
        Some(_) => {
            let reason = "training computes in f32; write `bf16` or `no`";
            foreign.refuse("acceleration.mixed_precision_mode", reason);
        }
    }
    if foreign.get("acceleration.quantization").is_some() {
        let reason = "a model is trained with the weights it has; write `null`";
        foreign.refuse("acceleration.quantization", reason);
    }
    if foreign.truth("acceleration.load_text_encoder_in_8bit") == Some(true) {
        let reason = "text encoders are used as they are stored; write `false`";
        foreign.refuse("acceleration.load_text_encoder_in_8bit", reason);
    }
    if foreign.truth("acceleration.offload_optimizer_during_validation") == Some(true) {
        let reason = "there is one memory, that of the processor";
        foreign.leave_out("acceleration.offload_optimizer_during_validation", reason);
    }
    if foreign.truth("hub.push_to_hub") == Some(true) {
        foreign.refuse("hub.push_to_hub", "nothing is uploaded; push what `moviola export` wrote");
    }
    foreign.get("hub.hub_model_id");
    if foreign.truth("wandb.enabled") == Some(true) {
        let reason =
            "a run leaves metrics.jsonl and TensorBoard's files; tools/wandb sends them on";
        foreign.leave_out("wandb.enabled", reason);
    }
    for key in ["project", "entity", "tags", "log_validation_videos"] {
        foreign.get(&format!("wandb.{key}"));
    }
    if let Some(folder) = foreign.text("output_dir") {
        foreign.leave_out("output_dir", &format!("it is an argument: `train --run {folder}`"));
    }
}
