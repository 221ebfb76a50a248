//! The questions of an exam as files, each with the command that answers it again.

use std::fs;
use std::path::Path;

use data::media::{ClipWriter, Frame, FrameRate};
use engine::{Media, Request, Solving};
use recipe::Answer;

use crate::failure::{Failure, Outcome};
use crate::output;

/// Refuses a folder that holds something.
///
/// # Errors
/// It does, or it is no folder.
pub(crate) fn spare(folder: &Path) -> Outcome {
    let is_free = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(err) => err.kind() == std::io::ErrorKind::NotFound,
    };
    match is_free {
        true => Ok(()),
        false => Err(Failure::Refused(format!(
            "--questions: {} is there already; choose another name, or empty it",
            folder.display()
        ))),
    }
}

/// Leaves a folder for each question of a request.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(folder: &Path, model: &Path, request: &Request, answers: &[Answer]) -> Outcome {
    for (at, answer) in answers.iter().enumerate() {
        let own = folder.join(format!("{at:03}"));
        fs::create_dir_all(&own)
            .map_err(|err| Failure::Refused(format!("cannot make {}: {err}", own.display())))?;
        let mut words = command(model, request, at);
        let given = &request.given[at];
        let clips =
            [("video-prefix", &given.video_prefix), ("video", &given.video), ("mask", &given.mask)];
        if let Some(Media::Frames(frames)) = &given.image {
            let path = own.join("image.png");
            write_frames(&path, frames)?;
            words.extend(["--image".to_owned(), path.display().to_string()]);
        }
        let reference = given.references.first().map(|(media, _)| media.clone());
        for (name, media) in clips.into_iter().chain([("reference", &reference)]) {
            if let Some(Media::Frames(frames)) = media {
                let path = own.join(name);
                write_frames(&path, frames)?;
                words.extend([format!("--{name}"), path.display().to_string()]);
            }
        }
        if request.without_audio {
            words.push("--without-audio".to_owned());
        }
        write_frames(&own.join("answer"), &frames(answer)?)?;
        if let Some(sound) = &answer.sound {
            sound.write(&own.join("answer.wav"))?;
        }
        let text = serde_json::to_string_pretty(&words).expect("words are JSON");
        output::write(&own.join("command.json"), text.as_bytes())?;
    }
    Ok(())
}

/// `generate` for one question, without what it gives and without where it goes.
fn command(model: &Path, request: &Request, at: usize) -> Vec<String> {
    let mut words = vec!["generate".to_owned()];
    let mut add = |key: &str, value: String| words.extend([format!("--{key}"), value]);
    add("model", model.display().to_string());
    add("prompt", request.prompts[at].clone());
    add("seed", request.seed.to_string());
    add("first-sample", at.to_string());
    for (key, size) in
        [("frames", request.frames), ("height", request.height), ("width", request.width)]
    {
        size.into_iter().for_each(|size| add(key, size.to_string()));
    }
    request.frame_rate.into_iter().for_each(|rate| add("fps", rate.to_string()));
    request.steps.into_iter().for_each(|steps| add("steps", steps.to_string()));
    request.guidance.into_iter().for_each(|scale| add("guidance", scale.to_string()));
    if let Solving::Renoise(timesteps) = &request.solving {
        add("solver", "renoise".to_owned());
        add("timesteps", timesteps.iter().map(f64::to_string).collect::<Vec<_>>().join(","));
    }
    words
}

fn frames(answer: &Answer) -> Outcome<Vec<Frame>> {
    let [count, height, width] = answer.clip.size();
    let frame = |at| Frame::new(height, width, answer.clip.frame(at).to_vec());
    Ok((0..count).map(frame).collect::<data::media::Result<_>>()?)
}

/// Frames as a folder of pictures.
fn write_frames(path: &Path, frames: &[Frame]) -> Outcome {
    let mut writer = ClipWriter::create(path, FrameRate::from_number(1.0)?)?;
    for frame in frames {
        writer.push(frame)?;
    }
    Ok(writer.finish()?)
}
