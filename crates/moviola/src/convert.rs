//! `moviola convert-recipe`.

use std::path::PathBuf;

use data::aside;
use recipe::{Converted, Places};

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::voice::Voice;

/// Make a recipe of a config of LTX-2's trainer.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The config. A key that cannot be converted is refused by its name; what is left out is said
    config: PathBuf,
    /// The model's folder or hub id [default: the folder that the config's checkpoint lies in]
    #[arg(long, value_name = "DIR|ORG/NAME")]
    model: Option<String>,
    /// The dataset that `moviola import` made [default: beside the config's folder of data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the recipe goes; nothing is overwritten [default: the standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  moviola convert-recipe configs/lora.yaml --model path/to/model --data dataset --output lora.yaml
  moviola train lora.yaml --dry-run";

/// Converts, says what was left out, and writes the recipe.
///
/// # Errors
/// A key cannot be converted, or the file cannot be written.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let places = Places { model: arguments.model.clone(), data: arguments.data.clone() };
    let Converted { yaml, left_out, .. } = recipe::convert(&arguments.config, &places)?;
    if let Some(path) = arguments.output.as_ref().filter(|own| own.exists()) {
        return Err(Failure::Refused(format!(
            "{} exists; give --output another name",
            path.display()
        )));
    }
    for (key, reason) in &left_out {
        voice.warn(&format!("left out {key}: {reason}"));
    }
    match arguments.output.as_ref().filter(|own| !aside::is_stdout(own)) {
        Some(path) => {
            output::write(path, yaml.as_bytes())?;
            Ok(crate::say(format_args!("{}\n", path.display()))?)
        }
        None => Ok(crate::say(format_args!("{yaml}"))?),
    }
}
