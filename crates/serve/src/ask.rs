//! What a job was asked for, as it is kept with it, and the engine's request of it.

use std::path::Path;

use engine::{Fit, Given, Request};
use families::Condition;
use serde::{Deserialize, Serialize};

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Makes {
    /// A clip, which waits to be fetched.
    Video,
    /// Pictures, for which a client waits.
    Images,
}

impl Makes {
    /// Its name in the table of jobs, and how ids begin.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Makes::Video => "video",
            Makes::Images => "image",
        }
    }

    /// What has this name in the table of jobs.
    pub(crate) fn named(name: &str) -> Makes {
        if name == Makes::Images.name() { Makes::Images } else { Makes::Video }
    }
}

/// What a job was asked for. Everything that was left open and is drawn is filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) makes: Makes,
    pub(crate) model: String,
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) negative: String,
    pub(crate) seed: u64,
    /// Samples.
    pub(crate) count: usize,
    #[serde(flatten)]
    pub(crate) numbers: Numbers,
    /// Files of the job's folder that are given beside the prompt.
    #[serde(default)]
    pub(crate) given: Vec<GivenFile>,
    #[serde(default)]
    pub(crate) loras: Vec<LoraAsk>,
    /// The job that this one makes again with another prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remixed_from: Option<String>,
    /// How many times clean latents are shown on the way.
    #[serde(default)]
    pub(crate) previews: usize,
    /// What pictures are written as.
    #[serde(default)]
    pub(crate) format: PictureFormat,
}

/// Numbers of a request that have the model's own as default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) steps: Option<usize>,
    pub(crate) guidance: Option<f64>,
    pub(crate) second_guidance: Option<f64>,
    pub(crate) height: Option<usize>,
    pub(crate) width: Option<usize>,
    pub(crate) frames: Option<usize>,
    pub(crate) fps: Option<f64>,
    pub(crate) flow_shift: Option<f64>,
    pub(crate) fit: Option<String>,
}

/// A file that is given beside a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenFile {
    pub(crate) role: Condition,
    /// Its name within the job's folder.
    pub(crate) file: String,
    /// The frame that a picture stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frame: Option<usize>,
    /// How many times smaller a reference is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scale: Option<usize>,
}

/// A LoRA by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoraAsk {
    pub(crate) name: String,
    pub(crate) scale: f32,
}

/// What pictures are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PictureFormat {
    #[default]
    Png,
    Jpeg,
    Webp,
}

impl PictureFormat {
    /// All of them, as clients call them.
    pub(crate) const ALL: [(&'static str, PictureFormat); 3] =
        [("png", PictureFormat::Png), ("jpeg", PictureFormat::Jpeg), ("webp", PictureFormat::Webp)];

    /// What clients call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PictureFormat::Png => "png",
            PictureFormat::Jpeg => "jpeg",
            PictureFormat::Webp => "webp",
        }
    }
}

impl Ask {
    /// What stands for something that cannot be read any more.
    pub(crate) fn lost(makes: Makes) -> Ask {
        Ask {
            makes,
            model: String::new(),
            prompt: String::new(),
            negative: String::new(),
            seed: 0,
            count: 1,
            numbers: Numbers::default(),
            given: Vec::new(),
            loras: Vec::new(),
            remixed_from: None,
            previews: 0,
            format: PictureFormat::Png,
        }
    }

    /// Whether another clip can be made in the same run: it differs in its prompt, its seed and what is given only. No
    /// clip is another for it, because no row of a product depends on the others.
    pub(crate) fn shares_a_run(&self, other: &Ask) -> bool {
        let alike = |ask: &Ask| Ask {
            prompt: String::new(),
            seed: 0,
            given: Vec::new(),
            remixed_from: None,
            ..ask.clone()
        };
        let is_clip = self.makes == Makes::Video && self.previews == 0;
        // The size may follow a picture.
        let is_sized = |ask: &Ask| ask.given.is_empty() || ask.numbers.width.is_some();
        is_clip && alike(self) == alike(other) && (is_sized(self) && is_sized(other))
    }

    /// The engine's request of all that share a run, each with the folder of its files.
    pub(crate) fn shared_request(all: &[(&Ask, &Path)]) -> Request {
        let Some(((first, folder), others)) = all.split_first() else { return Request::default() };
        let mut request = first.request(folder);
        if !others.is_empty() {
            request.seeds = all.iter().map(|(ask, _)| ask.seed).collect();
        }
        for (ask, folder) in others {
            let own = ask.request(folder);
            request.prompts.extend(own.prompts);
            request.given.extend(own.given);
        }
        request
    }

    /// The engine's request, whose files are in `folder`.
    pub(crate) fn request(&self, folder: &Path) -> Request {
        let mut given = Given::default();
        for GivenFile { role, file, frame, scale } in &self.given {
            given.give(*role, folder.join(file), *frame, *scale);
        }
        let Numbers {
            steps,
            guidance,
            second_guidance,
            height,
            width,
            frames,
            fps,
            flow_shift,
            fit,
        } = self.numbers.clone();
        let fit = fit.and_then(|name| Fit::ALL.into_iter().find(|(known, _)| *known == name));
        Request {
            prompts: vec![self.prompt.clone()],
            given: vec![given],
            negative: self.negative.clone(),
            steps,
            guidance,
            second_guidance,
            height,
            width,
            frames,
            frame_rate: fps,
            flow_shift,
            fit: fit.map(|(_, fit)| fit),
            seed: self.seed,
            count: self.count,
            ..Request::default()
        }
    }
}
