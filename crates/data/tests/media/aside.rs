//! Files that are whole or not there: what they are allowed to touch.

use std::fs;
use std::io::Write;
use std::path::Path;

use data::aside::{AsideFile, AsideFolder, Existing, check_writable, write_whole};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_fails_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x.json");
    fs::write(&target, "before").unwrap();
    let mut file = AsideFile::create(&target, Existing::Replace).unwrap();
    file.write_all(&[b'x'; 100_000]).unwrap();
    assert_eq!(names(folder.path()).len(), 2);
    drop(file);
    assert_eq!(names(folder.path()), ["x.json"]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "before");

    let aside = AsideFolder::create(&folder.path().join("clip"), Existing::Refuse).unwrap();
    fs::write(aside.path().join("0000.png"), "half").unwrap();
    drop(aside);
    check_writable(&folder.path().join("y.json")).unwrap();
    assert_eq!(names(folder.path()), ["x.json"]);
}

#[test]
fn nothing_is_replaced_unless_asked() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("x.json");
    // It appears while ours is being written.
    let mut late = AsideFile::create(&target, Existing::Refuse).unwrap();
    late.write_all(b"ours").unwrap();
    fs::write(&target, "theirs").unwrap();
    assert!(late.commit().is_err());
    let early = AsideFile::create(&target, Existing::Refuse).unwrap_err().to_string();
    assert!(early.contains("there is a file of this name"), "{early}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
    write_whole(&target, b"asked").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "asked");

    let clip = folder.path().join("clip");
    let aside = AsideFolder::create(&clip, Existing::Replace).unwrap();
    fs::create_dir(&clip).unwrap();
    fs::write(clip.join("theirs"), "").unwrap();
    assert!(aside.commit().is_err());
    for existing in [Existing::Refuse, Existing::Replace] {
        let message = AsideFolder::create(&clip, existing).unwrap_err().to_string();
        assert!(message.contains("not empty"), "{message}");
        assert!(AsideFolder::create(&target, existing).is_err());
        assert!(AsideFile::create(&clip, existing).is_err());
    }
    assert_eq!(names(folder.path()), ["clip", "x.json"]);
    assert_eq!(names(&clip), ["theirs"]);
}

/// What a process that was killed has left is removed by whoever makes the same file next; what another
/// is still making, what is newer than that, and what is called otherwise stays.
#[test]
fn what_was_left_behind_is_removed() {
    use std::time::{Duration, SystemTime};
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let age = |name: &str| {
        let long_ago = SystemTime::now() - Duration::from_secs(600);
        fs::File::open(place(name)).unwrap().set_modified(long_ago).unwrap();
    };
    let left = [".x.gif.4711.Ab12Cd.part", ".x.gif.12.000000.part"];
    let others =
        [".x.gif.4711.part", ".y.gif.4711.Ab12Cd.part", ".x.gif.x.Ab12Cd.part", "x.gif.part"];
    for name in left.iter().chain(&others) {
        fs::write(place(name), "half").unwrap();
        age(name);
    }
    let young = ".x.gif.4711.Newer1.part";
    fs::write(place(young), "half").unwrap();
    let alive = AsideFile::create(&place("x.gif"), Existing::Replace).unwrap();
    let mut stay: Vec<String> =
        others.iter().chain([&young]).map(|name| (*name).to_owned()).collect();
    let made = names(folder.path()).into_iter().find(|name| !stay.contains(name)).unwrap();
    age(&made);
    stay.push(made);
    stay.sort();
    assert_eq!(names(folder.path()), stay);
    check_writable(&place("x.gif")).unwrap();
    assert_eq!(names(folder.path()), stay, "what is being made is not left behind");
    data::aside::remove_own_unfinished(&place("x.gif"));
    assert_eq!(names(folder.path()).len(), stay.len() - 1, "a process may give up what it makes");
    drop(alive);

    fs::create_dir(place(".clip.4711.Ab12Cd.part")).unwrap();
    fs::write(place(".clip.4711.Ab12Cd.part/0000.png"), "half").unwrap();
    age(".clip.4711.Ab12Cd.part");
    drop(AsideFolder::create(&place("clip"), Existing::Refuse).unwrap());
    assert!(!place(".clip.4711.Ab12Cd.part").exists());
}

#[test]
fn folders_that_lead_to_a_file_may_be_made() {
    use data::aside::{check_writable_below, make_parents};
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("a/b/c.gif");
    check_writable_below(&deep).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(check_writable_below(&folder.path().join("file/b/c.gif")).is_err());
    assert!(check_writable_below(&folder.path().join("no/..")).is_err());
    make_parents(&deep).unwrap();
    write_whole(&deep, b"x").unwrap();
    assert!(deep.is_file());
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// The same as anything else that this process makes: 0666 or 0777 less the umask.
    #[test]
    fn permissions_are_those_of_anything_new() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("plain"), "").unwrap();
        fs::create_dir(place("plain-folder")).unwrap();
        write_whole(&place("ours"), b"x").unwrap();
        let aside = AsideFolder::create(&place("our-folder"), Existing::Refuse).unwrap();
        fs::write(aside.path().join("file"), "").unwrap();
        aside.commit().unwrap();
        assert_eq!(mode(&place("ours")), mode(&place("plain")));
        assert_eq!(mode(&place("our-folder")), mode(&place("plain-folder")));
        assert_eq!(mode(&place("our-folder/file")), mode(&place("plain")));
    }

    /// Whoever may write to the folder could once foresee the name, and choose what is overwritten.
    #[test]
    fn a_link_at_a_name_that_could_be_foreseen_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let foreseen = format!(".x.json.{}.part", std::process::id());
        symlink(&victim, folder.path().join(&foreseen)).unwrap();
        write_whole(&folder.path().join("x.json"), b"ours").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(folder.path().join("x.json")).unwrap(), "ours");
        assert_eq!(names(folder.path()), [foreseen.as_str(), "victim", "x.json"]);
    }

    /// Reached by a link, so that a failure of this test harms no machine that it runs on.
    #[test]
    fn a_device_is_written_to_and_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let null = folder.path().join("null.json");
        symlink("/dev/null", &null).unwrap();
        check_writable(&null).unwrap();
        write_whole(&null, b"gone").unwrap();
        assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
        // It is no file that could be lost, so nothing is refused either.
        let mut file = AsideFile::create(&null, Existing::Refuse).unwrap();
        file.overwrite(3, b"x").unwrap();
        file.commit().unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_symlink());
        assert_eq!(names(folder.path()), ["null.json"]);
    }

    #[test]
    fn a_pipe_gets_all_of_it_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.mp4");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        let mut file = AsideFile::create(&pipe, Existing::Replace).unwrap();
        file.write_all(b"____ and the rest").unwrap();
        // Such a format writes its head last.
        file.overwrite(0, b"head").unwrap();
        file.commit().unwrap();
        assert_eq!(reader.join().unwrap(), b"head and the rest");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(names(folder.path()), ["pipe.mp4"]);
    }
}
