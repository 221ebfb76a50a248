//! Named fields of a body, taken one by one; what is left over is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use families::Condition;
use nn::most_similar;
use tokio::sync::OwnedSemaphorePermit;

use crate::ask::GivenFile;
use crate::error::{Answer, Refusal};
use crate::form::{Form, Value};
use crate::upload::{self, Kind};

/// The fields of a body, and the folder that its files are in.
pub(crate) struct Fields {
    fields: Vec<(String, Value)>,
    /// The room that they take.
    _held: Vec<OwnedSemaphorePermit>,
    folder: PathBuf,
    /// Names that were asked for, which are those that are known.
    known: Vec<String>,
    /// What whoever asked should know.
    notes: Vec<String>,
}

impl Fields {
    pub(crate) fn new(form: Form, folder: &Path) -> Fields {
        // Clients write `key[]` for a list, of one too.
        let (known, notes) = (Vec::new(), Vec::new());
        let Form { fields, held } = form;
        Fields { fields, _held: held, folder: folder.to_owned(), known, notes }
    }

    /// Something that whoever asked should know.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// All values of a name, and of the same as a list.
    fn take(&mut self, name: &str) -> Vec<Value> {
        self.known.push(name.to_owned());
        let listed = format!("{name}[]");
        let is_own = |field: &mut (String, Value)| field.0 == name || field.0 == listed;
        self.fields.extract_if(.., is_own).map(|(_, value)| value).collect()
    }

    /// A text, if it is there.
    ///
    /// # Errors
    /// It is there twice, or a file.
    pub(crate) fn text(&mut self, name: &str) -> Answer<Option<String>> {
        let mut all = self.take(name);
        match (all.pop(), all.is_empty()) {
            (None, _) => Ok(None),
            (Some(Value::Text(text)), true) => Ok(Some(text)),
            (Some(_), true) => {
                Err(Refusal::field(name, format!("{name}: it is a file; give a text")))
            }
            (Some(_), false) => {
                Err(Refusal::field(name, format!("{name}: it is given more than once")))
            }
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Answer<String> {
        let text = self.text(name)?;
        text.ok_or_else(|| Refusal::field(name, format!("{name}: it is missing; give it")))
    }

    /// A value of another kind, if it is there and not `auto`.
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str, what: &str) -> Answer<Option<T>> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty() && text != "auto") else {
            return Ok(None);
        };
        let parsed = text.trim().parse().ok();
        let shown: String = text.chars().take(40).collect();
        let refuse = || Refusal::field(name, format!("{name}: it is `{shown}`; give {what}"));
        parsed.map(Some).ok_or_else(refuse)
    }

    /// A whole number.
    pub(crate) fn whole(&mut self, name: &str) -> Answer<Option<usize>> {
        self.parsed(name, "a whole number")
    }

    /// A number that is finite.
    pub(crate) fn number(&mut self, name: &str) -> Answer<Option<f64>> {
        let number: Option<f64> = self.parsed(name, "a number")?;
        match number.is_none_or(f64::is_finite) {
            true => Ok(number),
            false => Err(Refusal::field(name, format!("{name}: it is not finite; give a number"))),
        }
    }

    /// A field that does nothing here, and may be given as long as it asks for nothing.
    pub(crate) fn neutral(&mut self, name: &str, allowed: &[&str]) -> Answer<()> {
        match self.text(name)? {
            Some(text) if !allowed.contains(&text.as_str()) => {
                let list = allowed.join("`, `");
                let shown: String = text.chars().take(40).collect();
                let reason = format!(
                    "{name}: it is `{shown}`, which this server cannot do; leave it out, or give `{list}`"
                );
                Err(Refusal::field(name, reason))
            }
            _ => Ok(()),
        }
    }

    /// A field that may hold anything, and is not looked at.
    pub(crate) fn ignore(&mut self, name: &str) {
        self.take(name);
    }

    /// What stands under `name[sub]`, as pairs of the sub and its text; the field itself is not one of them.
    pub(crate) fn nested(&mut self, name: &str) -> Answer<Vec<(String, String)>> {
        self.known.push(name.to_owned());
        let prefix = format!("{name}[");
        let is_own = |field: &mut (String, Value)| field.0.starts_with(&prefix);
        let own: Vec<(String, Value)> = self.fields.extract_if(.., is_own).collect();
        let one = |(key, value): (String, Value)| match value {
            Value::Text(text) => Ok((key[prefix.len()..].trim_end_matches(']').to_owned(), text)),
            Value::File(_) => {
                Err(Refusal::field(&key, format!("{key}: it is a file; give a text")))
            }
        };
        own.into_iter().map(one).collect()
    }

    /// Files of a condition: uploads, or data URLs, under any of the names that it has.
    pub(crate) fn media(&mut self, names: &[&str], role: Condition) -> Answer<Vec<GivenFile>> {
        let mut all = Vec::new();
        for name in names {
            let url = format!("{name}[image_url]");
            let id = format!("{name}[file_id]");
            if !self.take(&id).is_empty() {
                let reason =
                    format!("{id}: this server keeps no files; upload it, or give a data URL");
                return Err(Refusal::field(&id, reason));
            }
            for value in self.take(name).into_iter().chain(self.take(&url)) {
                all.push(self.given(name, value, role, None)?);
            }
        }
        Ok(all)
    }

    /// Pictures that stand for a condition which is a clip elsewhere: one of one frame.
    pub(crate) fn pictures(&mut self, name: &str, role: Condition) -> Answer<Vec<GivenFile>> {
        let all = self.media(&[name], Condition::Image)?;
        Ok(all.into_iter().map(|own| GivenFile { role, ..own }).collect())
    }

    /// Pictures for frames: `keyframe[40]`.
    pub(crate) fn keyframes(&mut self) -> Answer<Vec<GivenFile>> {
        const NAME: &str = "keyframe";
        self.known.push(format!("{NAME}[FRAME]"));
        let is_own = |field: &mut (String, Value)| field.0.starts_with("keyframe[");
        let own: Vec<(String, Value)> = self.fields.extract_if(.., is_own).collect();
        let one = |(key, value): (String, Value)| {
            let frame = key[NAME.len() + 1..].trim_end_matches(']').parse().ok();
            let reason = || format!("{key}: write keyframe[FRAME], as in keyframe[40]");
            let frame = frame.ok_or_else(|| Refusal::field(&key, reason()))?;
            self.given(&key, value, Condition::Keyframe, Some(frame))
        };
        own.into_iter().map(one).collect()
    }

    /// A file as it is kept with a job.
    fn given(
        &self,
        name: &str,
        value: Value,
        role: Condition,
        frame: Option<usize>,
    ) -> Answer<GivenFile> {
        let path = match value {
            Value::File(path) => path,
            Value::Text(text) => {
                let bytes = upload::data_url(&text, name)?;
                let number = fs::read_dir(&self.folder).map_or(0, Iterator::count);
                let path = self.folder.join(format!("data-{number:03}"));
                fs::write(&path, bytes).map_err(|error| Refusal::ours(&error))?;
                path
            }
        };
        let (path, kind) = upload::identify(&path, name)?;
        let fits = match role {
            Condition::Image | Condition::LastImage | Condition::Keyframe => {
                matches!(kind, Kind::Picture(_))
            }
            Condition::VideoPrefix | Condition::Video => matches!(kind, Kind::Clip(_)),
            Condition::Mask | Condition::Reference => kind != Kind::Sound,
            Condition::Audio => kind == Kind::Sound,
        };
        if !fits {
            let want = match role {
                Condition::Audio => "a WAV sound",
                Condition::VideoPrefix | Condition::Video => "a clip (MP4, WebM, AVI or GIF)",
                Condition::Mask | Condition::Reference => "a picture or a clip",
                _ => "a picture (PNG, JPEG or WebP)",
            };
            return Err(Refusal::field(
                name,
                format!("{name}: it holds something else; give {want}"),
            ));
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(GivenFile { role, file, frame, scale: None })
    }

    /// Refuses what nobody asked for, and gives what was noted.
    ///
    /// # Errors
    /// There is something; the nearest known name is told.
    pub(crate) fn finish(self) -> Answer<Vec<String>> {
        let Some((name, _)) = self.fields.first() else { return Ok(self.notes) };
        let near = most_similar(name, self.known.iter().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        let reason = format!("{name}: there is no such field here{near}");
        Err(Refusal::unknown_field(name, reason))
    }
}

/// Width and height of a size like `832x480`, unless it is `auto`.
///
/// # Errors
/// It is none.
pub(crate) fn size(text: Option<String>) -> Answer<Option<[usize; 2]>> {
    let Some(text) = text.filter(|text| !text.is_empty() && text != "auto") else {
        return Ok(None);
    };
    let parts = text.split_once(['x', 'X']);
    let parts = parts.and_then(|(width, height)| {
        Some([width.trim().parse().ok()?, height.trim().parse().ok()?])
    });
    let shown: String = text.chars().take(40).collect();
    let refuse = || {
        Refusal::field("size", format!("size: it is `{shown}`; write WIDTHxHEIGHT, as in 832x480"))
    };
    parts.map(Some).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Fields, size};
    use crate::form::{Form, Value};

    fn fields(all: &[(&str, &str)]) -> Fields {
        let own =
            |(name, text): &(&str, &str)| ((*name).to_owned(), Value::Text((*text).to_owned()));
        Fields::new(
            Form { fields: all.iter().map(own).collect(), held: Vec::new() },
            Path::new("."),
        )
    }

    #[test]
    fn what_is_left_over_is_refused_with_the_nearest_name() {
        let mut own = fields(&[("prompt", "a fox"), ("guidence_scale", "3")]);
        assert_eq!(own.required("prompt").ok().unwrap(), "a fox");
        assert_eq!(own.number("guidance_scale").ok().unwrap(), None);
        let refused = own.finish().unwrap_err().value().to_string();
        assert!(refused.contains("did you mean `guidance_scale`?"), "{refused}");
        assert!(refused.contains("unknown_parameter"), "{refused}");
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        for (name, text) in [("steps", "4.5"), ("steps", "-1"), ("steps", "many")] {
            assert!(fields(&[(name, text)]).whole(name).is_err(), "{text}");
        }
        assert!(fields(&[("x", "inf")]).number("x").is_err());
        assert!(fields(&[("x", "1"), ("x", "2")]).number("x").is_err());
        assert_eq!(fields(&[("x[]", "2")]).number("x").ok().unwrap(), Some(2.0));
        assert_eq!(fields(&[("x", "auto")]).whole("x").ok().unwrap(), None);
    }

    #[test]
    fn a_size_is_width_by_height() {
        assert_eq!(size(Some("832x480".to_owned())).ok().unwrap(), Some([832, 480]));
        assert_eq!(size(Some("auto".to_owned())).ok().unwrap(), None);
        for bad in ["832", "x", "832x", "axb", "832x480x3", "-1x5"] {
            assert!(size(Some(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
