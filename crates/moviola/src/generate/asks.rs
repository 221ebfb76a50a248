//! The parts of a run: prompts of a file may have settings of their own.

use std::path::Path;

use engine::Seed;
use folder::lora::LoraSource;
use nn::most_similar;
use serde_json::{Map, Value};

use super::arguments::Arguments;
use crate::failure::{Failure, Outcome};

/// What a line of a .jsonl file may say.
const KEYS: [&str; 15] = [
    "prompt",
    "negative",
    "seed",
    "count",
    "steps",
    "guidance",
    "guidance_2",
    "flow_shift",
    "height",
    "width",
    "size",
    "frames",
    "image",
    "lora",
    "lora_2",
];

/// What the same is called elsewhere.
const ALIASES: [(&str, &str); 5] = [
    ("negative_prompt", "negative"),
    ("num_inference_steps", "steps"),
    ("guidance_scale", "guidance"),
    ("cfg_scale", "guidance"),
    ("num_frames", "frames"),
];

/// What all prompts of a run ask for: arguments for each part of it, whose prompts differ in their text
/// alone. A line that has a seed of its own is made as if it were alone.
///
/// # Errors
/// There is no prompt, or a file of them cannot be read.
pub(super) fn asks(arguments: &Arguments) -> Outcome<Vec<Arguments>> {
    let mut base = arguments.clone();
    (base.seed, base.prompt, base.prompts) = (base.seed.drawn(), Vec::new(), None);
    if arguments.prompt_embeds.is_some() {
        return Ok(vec![base]);
    }
    let mut lines: Vec<Line> = Vec::new();
    let with =
        |prompt: &String| Line::of(Arguments { prompt: vec![prompt.clone()], ..base.clone() });
    lines.extend(arguments.prompt.iter().map(with));
    if let Some(path) = &arguments.prompts {
        lines.extend(read(path, &base)?);
    }
    if lines.is_empty() {
        return Err(Failure::refused(
            "there is no prompt; give --prompt, --prompts or --prompt-embeds",
        ));
    }
    Ok(joined(number(lines, &base)))
}

/// What a prompt asks for.
struct Line {
    asks: Arguments,
    /// Whether it has a seed of its own, which may be that of the others.
    has_seed: bool,
}

impl Line {
    fn of(asks: Arguments) -> Line {
        Line { asks, has_seed: false }
    }
}

/// Numbers the samples: one after another, but from the beginning where a line has its own seed.
fn number(lines: Vec<Line>, base: &Arguments) -> Vec<Arguments> {
    let mut next = base.first_sample;
    let numbered = lines.into_iter().map(|Line { asks, has_seed }| {
        if has_seed {
            return asks;
        }
        let first_sample = next;
        next = next.saturating_add(asks.count as u64);
        Arguments { first_sample, ..asks }
    });
    numbered.collect()
}

/// Neighbours that differ in their prompts alone are one part.
fn joined(lines: Vec<Arguments>) -> Vec<Arguments> {
    let mut parts: Vec<Arguments> = Vec::new();
    for line in lines {
        let follows = |part: &Arguments| {
            let samples = (part.prompt.len() * part.count) as u64;
            let next = Arguments {
                prompt: part.prompt.clone(),
                first_sample: part.first_sample,
                line: part.line,
                ..line.clone()
            };
            part.first_sample.checked_add(samples) == Some(line.first_sample) && next == *part
        };
        match parts.last_mut().filter(|part| follows(part)) {
            Some(part) => part.prompt.extend(line.prompt),
            None => parts.push(line),
        }
    }
    parts
}

/// No file of prompts is longer.
const LONGEST: u64 = 1 << 28;

/// The lines of a file, without those that are empty or a comment.
fn read(path: &Path, base: &Arguments) -> Outcome<Vec<Line>> {
    // In whatever encoding an editor wrote it.
    let text = data::preprocess::read_text(path, LONGEST).map_err(|err| {
        Failure::Refused(format!("--prompts: {} cannot be read: {err}", path.display()))
    })?;
    let is_json = is_json(path);
    if is_named(path, "json") {
        return Err(Failure::Refused(format!(
            "--prompts: {} is JSON as a whole, which is not read; write an object in each line, and call it .jsonl",
            path.display()
        )));
    }
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let ask = |(at, line): (usize, &str)| {
        let own = if is_json { object(line, base) } else { plain(line, base) };
        let own = own.map(|own| Line { asks: Arguments { line: Some(at + 1), ..own.asks }, ..own });
        own.map_err(|reason| Failure::Refused(of_line(path, at + 1, &reason)))
    };
    lines.map(ask).collect()
}

/// Why a line cannot be made.
fn of_line(path: &Path, line: usize, reason: &str) -> String {
    format!("--prompts: line {line} of {}: {reason}", path.display())
}

/// The same of an argument that is refused later, where lines may have settings of their own.
pub(super) fn named(failure: Failure, arguments: &Arguments, part: &Arguments) -> Failure {
    match (failure, arguments.prompts.as_deref().filter(|path| is_json(path)), part.line) {
        (Failure::Refused(reason), Some(path), Some(line)) if reason.starts_with("--") => {
            Failure::Refused(of_line(path, line, &reason))
        }
        (failure, ..) => failure,
    }
}

/// Whether the lines of a file are objects.
fn is_json(path: &Path) -> bool {
    is_named(path, "jsonl")
}

fn is_named(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
}

/// What a line of any other file asks for.
fn plain(line: &str, base: &Arguments) -> Result<Line, String> {
    // Other programs read `--w 512` of a line as a setting.
    let is_setting = |word: &&str| {
        let letter = word.strip_prefix("--").filter(|own| own.len() == 1);
        letter.is_some_and(|own| own.bytes().all(|own| own.is_ascii_alphabetic()))
    };
    match line.split_whitespace().find(is_setting) {
        Some(word) => Err(format!(
            "`{word}` is no part of a prompt here; take it out, and where it is a setting of this line alone, write \
             the lines to a .jsonl file, like {{\"prompt\": \"a fox\", \"width\": 512}}"
        )),
        None => Ok(Line::of(Arguments { prompt: vec![line.to_owned()], ..base.clone() })),
    }
}

/// What a line of a .jsonl file asks for, in the place of what all lines are asked for.
fn object(line: &str, base: &Arguments) -> Result<Line, String> {
    let value: Value = serde_json::from_str(line).map_err(|err| {
        format!(
            "it is no JSON object from column {} on, like {{\"prompt\": \"a fox\"}}",
            err.column()
        )
    })?;
    let fields = match value {
        Value::Object(fields) => fields,
        Value::String(prompt) => Map::from_iter([("prompt".to_owned(), prompt.into())]),
        _ => return Err("it is neither an object with a `prompt` nor a text".to_owned()),
    };
    if let Some(key) = fields.keys().find(|key| !KEYS.contains(&known(key))) {
        let near = most_similar(key, KEYS.into_iter());
        let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
        return Err(format!(
            "`{key}` is no setting of a line; {near}there are {}",
            KEYS.join(", ")
        ));
    }
    said_once(&fields)?;
    let (mut own, mut has_seed) = (base.clone(), false);
    let text = |key: &str, value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| format!("`{key}` is {value}, not a text"))
    };
    let number = |key: &str, value: &Value| {
        value.as_f64().ok_or_else(|| format!("`{key}` is {value}, not a number"))
    };
    let count = |key: &str, value: &Value| {
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| format!("`{key}` is {value}, not a whole number"))
    };
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match known(key) {
            "prompt" => own.prompt = vec![text(key, value)?],
            "negative" => own.negative = text(key, value)?,
            "seed" => (own.seed, has_seed) = (seed(value)?.drawn(), true),
            "count" => own.count = count(key, value)?,
            "steps" => own.steps = Some(count(key, value)?),
            "guidance" => own.guidance = Some(number(key, value)?),
            "guidance_2" => own.second_guidance = Some(number(key, value)?),
            "flow_shift" => own.flow_shift = Some(number(key, value)?),
            "height" => own.height = Some(count(key, value)?),
            "width" => own.width = Some(count(key, value)?),
            "size" => [own.width, own.height] = size(value)?.map(Some),
            "frames" => own.frames = Some(count(key, value)?),
            "image" => own.given.image = Some(text(key, value)?.into()),
            "lora" => own.lora = loras(key, value)?,
            _ => own.second_lora = loras(key, value)?,
        }
    }
    match own.prompt.is_empty() {
        true => Err("it has no `prompt`".to_owned()),
        false => Ok(Line { asks: own, has_seed }),
    }
}

/// Refuses a setting that a line says under two names, of which one would win in silence.
fn said_once(fields: &Map<String, Value>) -> Result<(), String> {
    let said: Vec<&str> =
        fields.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str()).collect();
    let is_same = |one: &str, other: &str| match (known(one), known(other)) {
        ("size", "width" | "height") => true,
        (one, other) => one == other,
    };
    for one in &said {
        if let Some(other) = said.iter().find(|other| *other != one && is_same(one, other)) {
            return Err(format!(
                "`{one}` and `{other}` say the same setting; leave one of them out"
            ));
        }
    }
    Ok(())
}

/// Our name of a setting.
fn known(key: &str) -> &str {
    ALIASES.iter().find(|(theirs, _)| *theirs == key).map_or(key, |(_, ours)| ours)
}

/// Width and height as `832x480`.
fn size(value: &Value) -> Result<[usize; 2], String> {
    let sides = value.as_str().and_then(|text| text.split_once('x'));
    let sides = sides.and_then(|(wide, high)| Some([wide.parse().ok()?, high.parse().ok()?]));
    sides.ok_or_else(|| format!("`size` is {value}, not WIDTHxHEIGHT, like 832x480"))
}

fn seed(value: &Value) -> Result<Seed, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().map_err(|err| format!("`seed` is {value}: {err}"))
}

/// `FILE[:SCALE]`, or several of them.
fn loras(key: &str, value: &Value) -> Result<Vec<LoraSource>, String> {
    let one = |value: &Value| {
        let text =
            value.as_str().ok_or_else(|| format!("`{key}` is {value}, not FILE or FILE:SCALE"))?;
        text.parse::<LoraSource>().map_err(|err| format!("`{key}`: {err}"))
    };
    match value {
        Value::Array(all) => all.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}
