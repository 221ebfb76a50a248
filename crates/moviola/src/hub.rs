//! How the hub is reached, by the variables that its own tools know.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use folder::{Hub, HubEvent};

use crate::voice::{Meter, Voice, bytes};

/// No token is longer.
const LONGEST_TOKEN: u64 = 1 << 16;

/// Bytes that are shown as one.
const MEBIBYTE: u64 = 1 << 20;

/// The hub as the environment describes it.
pub(crate) fn from_environment(voice: Voice) -> Hub {
    let mut hub = describe(&|name| std::env::var_os(name), std::env::home_dir());
    let shown = Mutex::new(None);
    hub.report =
        Arc::new(move |event| tell(event, voice, &mut shown.lock().expect("no one panics here")));
    hub
}

/// Reads `HF_HUB_CACHE`, `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH` and `HF_HUB_OFFLINE`
/// with the defaults of `huggingface_hub`.
fn describe(read: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Hub {
    let variable =
        |names: &[&str]| names.iter().find_map(|name| read(name)).filter(|own| !own.is_empty());
    let text = |names: &[&str]| variable(names).and_then(|own| own.into_string().ok());
    let folder = variable(&["HF_HOME"]).map(PathBuf::from).unwrap_or_else(|| {
        let caches = variable(&["XDG_CACHE_HOME"]).map(PathBuf::from);
        caches.unwrap_or_else(|| home.unwrap_or_default().join(".cache")).join("huggingface")
    });
    let cache = variable(&["HF_HUB_CACHE"]).map_or_else(|| folder.join("hub"), PathBuf::from);
    let token = text(&["HF_TOKEN"]).or_else(|| {
        let path = variable(&["HF_TOKEN_PATH"]).map_or_else(|| folder.join("token"), PathBuf::from);
        // A pipe would be waited for.
        kernels::read_text(&path, LONGEST_TOKEN).ok()
    });
    let token = token.map(|own| own.trim().to_owned()).filter(|own| !own.is_empty());
    let endpoint = text(&["HF_ENDPOINT"]).unwrap_or_else(|| "https://huggingface.co".to_owned());
    let offline = text(&["HF_HUB_OFFLINE"])
        .is_some_and(|own| ["1", "ON", "YES", "TRUE"].contains(&own.to_uppercase().as_str()));
    Hub { endpoint, token, offline, ..Hub::offline(cache) }
}

/// The file that is coming, and how far it is where it is large.
struct Shown {
    file: String,
    meter: Option<Meter>,
}

/// Names each file, and shows how a large one gets on.
fn tell(event: HubEvent<'_>, voice: Voice, shown: &mut Option<Shown>) {
    let (file, done, total) = match event {
        HubEvent::FromCache { reason } => {
            voice.warn(&format!(
                "the hub could not be asked ({reason}); using what its cache holds"
            ));
            return;
        }
        HubEvent::Fetching { file, done, total } => (file, done, total),
    };
    if shown.as_ref().is_none_or(|own| own.file != file) {
        voice.say(&format!("fetching {file} ({})", size(total)));
        let is_large = total >= MEBIBYTE;
        let meter = is_large.then(|| voice.meter_of("fetch", total.div_ceil(MEBIBYTE), "MiB"));
        *shown = Some(Shown { file: file.to_owned(), meter });
    }
    if let Some(meter) = shown.as_mut().and_then(|own| own.meter.as_mut()) {
        meter.reach(if done == total { total.div_ceil(MEBIBYTE) } else { done / MEBIBYTE }, "");
    }
    if done == total
        && let Some(Shown { meter: Some(meter), .. }) = shown.take()
    {
        meter.finish();
    }
}

/// So many bytes, which may be few.
fn size(count: u64) -> String {
    if count < MEBIBYTE { format!("{count} bytes") } else { bytes(count) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;

    fn described(variables: &[(&str, &str)]) -> Hub {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        describe(&|name| variables.get(name).map(OsString::from), Some("/user".into()))
    }

    #[test]
    fn defaults_are_those_of_the_hub_s_own_tools() {
        let hub = described(&[]);
        assert_eq!(hub.cache, Path::new("/user/.cache/huggingface/hub"));
        assert_eq!(hub.endpoint, "https://huggingface.co");
        assert_eq!((hub.token, hub.offline), (None, false));
    }

    #[test]
    fn each_variable_has_its_effect() {
        let cache = |variables: &[(&str, &str)]| described(variables).cache;
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x")]), Path::new("/x/huggingface/hub"));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")]), Path::new("/h/hub"));
        assert_eq!(cache(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")]), Path::new("/c"));
        assert_eq!(cache(&[("HF_HUB_CACHE", "")]), Path::new("/user/.cache/huggingface/hub"));
        assert_eq!(described(&[("HF_ENDPOINT", "http://mirror")]).endpoint, "http://mirror");
        for (value, offline) in
            [("1", true), ("true", true), ("on", true), ("0", false), ("", false)]
        {
            assert_eq!(described(&[("HF_HUB_OFFLINE", value)]).offline, offline, "{value}");
        }
    }

    /// A pipe that nobody writes to is no token, and is not waited for.
    #[cfg(unix)]
    #[test]
    fn a_token_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("token");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(described(&[("HF_TOKEN_PATH", pipe.to_str().unwrap())]).token, None);
    }

    #[test]
    fn a_token_comes_from_the_variable_or_else_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        std::fs::write(folder.path().join("other"), "hf_other\n").unwrap();
        let other = format!("{home}/other");
        let token = |variables: &[(&str, &str)]| described(variables).token;
        assert_eq!(token(&[("HF_HOME", home)]).as_deref(), Some("hf_file"));
        let given = [("HF_HOME", home), ("HF_TOKEN_PATH", other.as_str())];
        assert_eq!(token(&given).as_deref(), Some("hf_other"));
        assert_eq!(
            token(&[("HF_HOME", home), ("HF_TOKEN", " hf_own ")]).as_deref(),
            Some("hf_own")
        );
    }
}
