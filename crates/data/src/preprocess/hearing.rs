//! Which clips have a sound, for models that hear.

use std::path::PathBuf;

use super::Media;
use super::doctor::{DoctorReport, Planned, Reason, Skipped};

impl DoctorReport {
    /// The same for a model that hears: where the sound of each clip is, if it has one. What was named for a sound and
    /// is none leaves its clip out; pictures have no sound.
    pub fn heard(self, media: &dyn Media) -> DoctorReport {
        let mut report = DoctorReport { planned: Vec::new(), ..self };
        for clip in self.planned {
            match sound(&clip, media) {
                Ok(sound) => report.planned.push(Planned { sound, ..clip }),
                Err(reason) => report.skipped.push(Skipped { id: clip.id, reason }),
            }
        }
        report
    }

    /// The same for a model that hears nothing, whatever there is to be heard.
    pub fn unheard(mut self) -> DoctorReport {
        self.planned.iter_mut().for_each(|clip| clip.sound = None);
        self
    }

    /// The clips that have no sound, pictures aside.
    pub fn silent(&self) -> Vec<&str> {
        let clips = self.planned.iter().filter(|own| own.source.frames > 1 && own.first == 0);
        clips.filter(|own| own.sound.is_none()).map(|own| own.id.as_str()).collect()
    }

    /// How many clips could have a sound: all but pictures.
    pub fn clips(&self) -> usize {
        self.planned.iter().filter(|own| own.source.frames > 1 && own.first == 0).count()
    }
}

/// Where the sound of a clip is.
fn sound(clip: &Planned, media: &dyn Media) -> Result<Option<PathBuf>, Reason> {
    if clip.source.frames == 1 {
        return Ok(None);
    }
    let path = clip.sound.as_ref().unwrap_or(&clip.path);
    let found = match path.is_file() {
        true => media.sounds(path).map_err(|cause| Reason::Unreadable(cause.to_string())),
        false => Err(Reason::Missing),
    };
    match (found, &clip.sound) {
        (Ok(true), _) => Ok(Some(path.clone())),
        (Ok(false), None) => Ok(None),
        (Ok(false), Some(_)) => Err(Reason::Sound(path.clone(), Box::new(Reason::Silent))),
        (Err(reason), _) => Err(Reason::Sound(path.clone(), Box::new(reason))),
    }
}
