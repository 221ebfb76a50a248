//! Models by hub id, against a server of our own that plays the hub.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use folder::{Hub, HubEvent, locate};
use tempfile::TempDir;

use crate::hub_server::{Answer, File, MAIN, Server};

const TAGGED: &str = "2222222222222222222222222222222222222222";
const TOKEN: &str = "hf_secret";

/// `printf hello | sha256sum`, and the hash that git gives it.
const HELLO_SHA256: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const HELLO_GIT: &str = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
const WEIGHTS: File<'_> = File { path: "vae/model.safetensors", hash: HELLO_SHA256, size: 5 };
const INDEX: File<'_> = File { path: "model_index.json", hash: HELLO_GIT, size: 5 };
const WEIGHTS_PATH: &str =
    "/o/m/resolve/1111111111111111111111111111111111111111/vae/model.safetensors";
const INDEX_PATH: &str = "/o/m/resolve/1111111111111111111111111111111111111111/model_index.json";

fn setup() -> (Server, TempDir) {
    (Server::new(), tempfile::tempdir().unwrap())
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[track_caller]
fn refusal(model: &str, hub: &Hub) -> String {
    locate(model, hub).unwrap_err().to_string()
}

/// Every path below a folder, links not followed.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            all.extend(tree(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[test]
fn a_model_is_downloaded_once_into_the_hub_s_own_layout() {
    let (server, cache) = setup();
    let picture = File { path: "picture.png", hash: HELLO_GIT, size: 5 };
    server.list("main", MAIN, &[INDEX, WEIGHTS, picture]);
    server.on(INDEX_PATH, [Answer::new("200 OK", "hello")]);
    let elsewhere = format!("location: http://localhost:{}/storage/blob?signed=1", server.port);
    server.on(WEIGHTS_PATH, [Answer::new("302 Found", "").with(elsewhere)]);
    server.on("/storage/blob?signed=1", [Answer::new("200 OK", "hello")]);
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let report = move |event: HubEvent<'_>| told.lock().unwrap().push(format!("{event:?}"));
    let token = Some(TOKEN.to_owned());
    let hub = Hub { token, report: Arc::new(report), ..server.hub(cache.path()) };

    let folder = locate("o/m", &hub).unwrap();
    let model = cache.path().join("models--o--m");
    assert_eq!(folder, model.join("snapshots").join(MAIN));
    assert_eq!(read(&folder, "model_index.json"), "hello");
    assert_eq!(read(&folder, "vae/model.safetensors"), "hello");
    assert_eq!(read(&model, "refs/main"), MAIN);
    let below = |name: &str| model.join(name);
    let want = [
        below(&format!("blobs/{HELLO_SHA256}")),
        below(&format!("blobs/{HELLO_GIT}")),
        below("refs/main"),
        folder.join("model_index.json"),
        folder.join("vae/model.safetensors"),
    ];
    assert_eq!(tree(&model), want, "no picture, nothing half done");
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(folder.join("vae/model.safetensors")).unwrap(),
        Path::new("../../../blobs").join(HELLO_SHA256)
    );
    assert_eq!(events.lock().unwrap().len(), 2, "{events:?}");
    assert!(events.lock().unwrap()[0].contains("done: 5, total: 5"), "{events:?}");

    let seen = server.seen();
    assert_eq!(seen.len(), 4, "{seen:?}");
    for seen in seen {
        let at_storage = seen.path.starts_with("/storage");
        let want = (!at_storage).then(|| format!("Bearer {TOKEN}"));
        assert_eq!(seen.authorization, want, "the token is the hub's alone: {}", seen.path);
        assert_eq!(seen.host.starts_with("localhost"), at_storage);
    }
    assert_eq!(locate("o/m", &hub).unwrap(), folder);
    assert_eq!(server.paths().len(), 1, "the second time asks for the listing only");
}

#[test]
fn revisions_stand_side_by_side_and_share_what_they_share() {
    let (server, cache) = setup();
    server.list("main", MAIN, &[INDEX]);
    server.list("refs%2Fpr%2F1", TAGGED, &[File { path: "other.json", ..INDEX }]);
    server.on(INDEX_PATH, [Answer::new("200 OK", "hello")]);
    let hub = server.hub(cache.path());
    let first = locate("o/m", &hub).unwrap();
    let second = locate("o/m@refs/pr/1", &hub).unwrap();
    assert_eq!((first.ends_with(MAIN), second.ends_with(TAGGED)), (true, true));
    assert_eq!(read(&second, "other.json"), "hello");
    assert!(!second.join("model_index.json").exists());
    assert_eq!(server.paths().len(), 3, "the shared content is downloaded once");

    let offline = Hub::offline(cache.path());
    assert_eq!(locate("o/m", &offline).unwrap(), first);
    assert_eq!(locate("o/m@refs/pr/1", &offline).unwrap(), second);
    assert_eq!(locate(&format!("o/m@{TAGGED}"), &offline).unwrap(), second);
    // A branch that moves takes its name along.
    server.list("main", TAGGED, &[File { path: "other.json", ..INDEX }]);
    assert_eq!(locate("o/m", &hub).unwrap(), second);
    assert_eq!(locate("o/m", &offline).unwrap(), second);
}

#[test]
fn a_download_that_breaks_off_is_gone_on_with() {
    let (server, cache) = setup();
    server.list("main", MAIN, &[WEIGHTS]);
    let broken = Answer { breaks_after: Some(2), ..Answer::new("200 OK", "hello") };
    let rest = Answer::new("206 Partial Content", "llo").with("content-range: bytes 2-4/5");
    server.on(WEIGHTS_PATH, [broken, rest]);
    let folder = locate("o/m", &server.hub(cache.path())).unwrap();
    assert_eq!(read(&folder, "vae/model.safetensors"), "hello");
    let ranges: Vec<_> = server.seen().into_iter().map(|seen| seen.range).collect();
    assert_eq!(ranges, [None, None, Some("bytes=2-".to_owned())]);
}

#[test]
fn a_server_that_cannot_go_on_is_read_from_the_beginning() {
    let (server, cache) = setup();
    server.list("main", MAIN, &[WEIGHTS]);
    let broken = Answer { breaks_after: Some(2), ..Answer::new("200 OK", "hello") };
    server.on(WEIGHTS_PATH, [broken, Answer::new("200 OK", "hello")]);
    let folder = locate("o/m", &server.hub(cache.path())).unwrap();
    assert_eq!(read(&folder, "vae/model.safetensors"), "hello");
}

#[test]
fn what_an_earlier_run_left_is_used_if_it_is_a_beginning_and_dropped_if_not() {
    for (left, kept) in [("he", true), ("ho", false), ("far too long", false)] {
        let (server, cache) = setup();
        server.list("main", MAIN, &[WEIGHTS]);
        let rest = Answer::new("206 Partial Content", "llo").with("content-range: bytes 2-4/5");
        let whole = Answer::new("200 OK", "hello");
        let answers = if left.len() == 2 { vec![rest, whole] } else { vec![whole] };
        server.on(WEIGHTS_PATH, answers);
        let blobs = cache.path().join("models--o--m/blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join(format!("{HELLO_SHA256}.incomplete")), left).unwrap();
        let folder = locate("o/m", &server.hub(cache.path())).unwrap();
        assert_eq!(read(&folder, "vae/model.safetensors"), "hello");
        let asked = server.paths().len() - 1;
        assert_eq!(asked, if left == "ho" { 2 } else { 1 }, "{left}, {kept}");
    }
}

#[test]
fn a_file_that_is_not_what_the_hub_lists_is_refused_and_leaves_nothing() {
    for (file, path) in [(WEIGHTS, WEIGHTS_PATH), (INDEX, INDEX_PATH)] {
        for (body, want) in [("hullo", "its hash is"), ("hello!", "longer than the 5 bytes")] {
            let (server, cache) = setup();
            let name = file.path;
            server.list("main", MAIN, &[File { ..file }]);
            server.on(path, [Answer::new("200 OK", body)]);
            let message = refusal("o/m", &server.hub(cache.path()));
            assert!(message.contains(want) && message.contains(name), "{message}");
            let left = tree(&cache.path().join("models--o--m"));
            let empty = |path: &PathBuf| fs::metadata(path).unwrap().len() == 0;
            assert!(left.iter().all(empty), "{left:?}");
            assert!(locate("o/m", &Hub::offline(cache.path())).is_err());
        }
    }
}

#[test]
fn a_wrong_file_is_refused_though_the_cache_has_an_older_revision() {
    let (server, cache) = setup();
    server.list("main", TAGGED, &[File { path: "other.json", ..INDEX }]);
    let other = format!("/o/m/resolve/{TAGGED}/other.json");
    server.on(&other, [Answer::new("200 OK", "hello")]);
    let hub = server.hub(cache.path());
    let old = locate("o/m", &hub).unwrap();
    server.list("main", MAIN, &[WEIGHTS]);
    server.on(WEIGHTS_PATH, [Answer::new("200 OK", "hullo")]);
    assert!(refusal("o/m", &hub).contains("its hash is"));
    assert_eq!(locate("o/m", &Hub::offline(cache.path())).unwrap(), old, "the whole one stays");
}

#[test]
fn a_download_that_always_breaks_off_keeps_what_came() {
    let (server, cache) = setup();
    server.list("main", MAIN, &[WEIGHTS]);
    let broken = Answer { breaks_after: Some(0), ..Answer::new("200 OK", "hello") };
    let first = Answer { breaks_after: Some(2), ..broken.clone() };
    let rest = Answer { status: "206 Partial Content", body: b"llo".to_vec(), ..broken };
    server.on(WEIGHTS_PATH, [first, rest.with("content-range: bytes 2-4/5")]);
    let message = refusal("o/m", &server.hub(cache.path()));
    assert!(message.contains("broke off 5 times"), "{message}");
    let left = cache.path().join(format!("models--o--m/blobs/{HELLO_SHA256}.incomplete"));
    assert_eq!(fs::read_to_string(left).unwrap(), "he");
}

#[test]
fn the_hub_s_refusals_are_told_with_a_remedy() {
    let listing = "/api/models/o/m/revision/main?blobs=true";
    let check = |status: &'static str, token: Option<&str>, want: &[&str]| {
        let (server, cache) = setup();
        let answer = Answer::new(status, "").with("x-error-message: Said by the hub");
        server.on(listing, [answer]);
        let hub = Hub { token: token.map(str::to_owned), ..server.hub(cache.path()) };
        let message = refusal("o/m", &hub);
        for want in [&["`o/m`", "Said by the hub"], want].concat() {
            assert!(message.contains(want), "{want}: {message}");
        }
        assert!(!message.contains(TOKEN));
    };
    check("401 Unauthorized", None, &["401", "needs a token (HF_TOKEN"]);
    check("403 Forbidden", Some(TOKEN), &["403", "accept the model's terms"]);
    check("404 Not Found", None, &["404", "no such model, revision or file"]);
    check("503 Service Unavailable", None, &["503"]);
}

#[test]
fn a_listing_cannot_write_outside_its_folder() {
    for path in ["../escaped.json", "/escaped.json", "a/../../escaped.json"] {
        let (server, cache) = setup();
        server.list("main", MAIN, &[File { path, ..INDEX }]);
        let message = refusal("o/m", &server.hub(cache.path()));
        assert!(message.contains("leaves the folder"), "{path}: {message}");
    }
    let (server, cache) = setup();
    server.list("main", "../../x", &[INDEX]);
    assert!(refusal("o/m", &server.hub(cache.path())).contains("no commit"));
    assert_eq!(tree(cache.path()), Vec::<PathBuf>::new());
}

#[test]
fn without_a_network_the_cache_serves_or_the_message_says_what_to_do() {
    let (server, cache) = setup();
    let message = refusal("o/m", &Hub::offline(cache.path()));
    assert!(message.contains("HF_HUB_OFFLINE") && message.contains("give its path"), "{message}");
    server.list("main", MAIN, &[INDEX]);
    server.on(INDEX_PATH, [Answer::new("200 OK", "hello")]);
    let folder = locate("o/m", &server.hub(cache.path())).unwrap();
    server.seen();
    assert_eq!(locate("o/m", &Hub { offline: true, ..server.hub(cache.path()) }).unwrap(), folder);
    assert_eq!(server.seen(), [], "offline asks nothing");

    // A port that nobody listens on.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let report = move |event: HubEvent<'_>| told.lock().unwrap().push(format!("{event:?}"));
    let away = Hub {
        endpoint: format!("http://{free}"),
        report: Arc::new(report),
        ..server.hub(cache.path())
    };
    assert_eq!(locate("o/m", &away).unwrap(), folder);
    assert!(events.lock().unwrap()[0].contains("FromCache"), "it is said");
    assert!(refusal("o/other", &away).contains("`o/other`"));
}

#[test]
fn a_mirror_that_lists_no_hashes_is_asked_for_those_of_the_file() {
    let (server, cache) = setup();
    server.list("main", MAIN, &[File { hash: "", ..WEIGHTS }]);
    let elsewhere = format!("location: http://localhost:{}/storage", server.port);
    let known = Answer::new("302 Found", "")
        .with(elsewhere)
        .with("etag: \"of-the-pointer\"")
        .with(format!("x-linked-etag: \"{HELLO_SHA256}\""))
        .with("x-linked-size: 5");
    server.on(WEIGHTS_PATH, [known]);
    server.on("/storage", [Answer::new("200 OK", "hello").with("etag: \"of-the-storage\"")]);
    let folder = locate("o/m", &server.hub(cache.path())).unwrap();
    assert_eq!(read(&folder, "vae/model.safetensors"), "hello");
    server.on(WEIGHTS_PATH, [Answer::new("200 OK", "hello").with("etag: \"unknown\"")]);
    let (_, empty) = setup();
    assert!(refusal("o/m", &server.hub(empty.path())).contains("does not say its length and hash"));
}
