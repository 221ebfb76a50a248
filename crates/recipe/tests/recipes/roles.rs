//! The networks of one method are of one kind, or the run is refused before its first step.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use recipe::{Student, Which};
use train::STUDENT;

use crate::building::{WAN, build, dataset, folder, no_hub, read, small, tiny};

/// What building says, with other networks for some roles.
fn refused(name: &str, overrides: &[String]) -> String {
    build(&read(name, overrides), None).err().expect("it should be refused").to_string()
}

#[test]
fn a_teacher_of_another_family_is_refused_by_name() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for (role, other) in [("teacher", "pixart-tiny"), ("critic", "pixart-tiny")] {
        let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
        overrides.push(format!("models.{role}.from={}", folder(other)));
        let message = refused("dmd2.yaml", &overrides);
        let want = format!("models.{role} has another family than models.student: pixart, not wan");
        assert!(message.contains(&want), "{message}");
    }
    // Of the same family, but with a VAE and a text encoder of its own.
    let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
    overrides.push(format!("models.teacher.from={}", folder("wan-tiny-ti2v")));
    let message = refused("dmd2.yaml", &overrides);
    let want = "models.teacher has another geometry of tokens than models.student: a token is 1 x 2 x 2 \
                latents of 4 x 16 x 16 pixels, not";
    assert!(message.contains(want), "{message}");
    // Folders that no role can come from are told with the role.
    for role in [STUDENT, "teacher", "critic"] {
        for other in [folder("wan-tiny-experts"), "no/such/folder".to_owned()] {
            let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
            overrides.push(format!("models.{role}.from={other}"));
            let message = refused("dmd2.yaml", &overrides);
            assert!(message.starts_with(&format!("models.{role}: ")), "{message}");
        }
    }
}

/// Latents and texts of other encoders are of the same shape and mean something else.
#[test]
fn a_teacher_with_other_encoders_is_refused_by_name() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "wan-tiny", [2, 4, 6], WAN, false);
    for (role, component, what) in [
        ("teacher", "vae/diffusion_pytorch_model", "encoder of video"),
        ("critic", "text_encoder/model", "encoder of text"),
    ] {
        let other = temporary.path().join(role);
        copy(Path::new(&folder("wan-tiny")), &other);
        let weights = other.join(component).with_extension("safetensors");
        let mut bytes = fs::read(&weights).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&weights, bytes).unwrap();
        let mut overrides = small("wan-tiny", &data, &[STUDENT, "teacher", "critic"]);
        overrides.push(format!("models.{role}.from={}", other.display()));
        let message = refused("dmd2.yaml", &overrides);
        let want = format!("models.{role} has another {what} than models.student");
        assert!(message.contains(&want), "{message}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// A family whose timesteps are counted has none that could be moved.
#[test]
fn a_student_whose_timesteps_cannot_be_warped_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    dataset(&data, "pixart-tiny", [1, 6, 8], 20, false);
    let mut overrides = small("pixart-tiny", &data, &[STUDENT, "teacher", "critic"]);
    overrides.push("method.timesteps=[999, 500]".to_owned());
    let message = refused("dmd2.yaml", &overrides);
    assert!(message.contains("`method.warp` would do nothing"), "{message}");
    overrides.push("method.warp=false".to_owned());
    build(&read("dmd2.yaml", &overrides), None).unwrap();
}

/// A Duet's folder, as a run leaves it.
fn exported(overrides: &[String], at: &Path) {
    let run = at.with_extension("run");
    build(&read("quickstart.yaml", overrides), Some(&run)).unwrap().trainer.run().unwrap();
    let student = Student::open(&run, Which::Live, &Device::flex(), &no_hub()).unwrap();
    student.write_folder(at).unwrap();
}

#[test]
fn a_teacher_that_predicts_something_else_is_refused_by_name() {
    let temporary = tempfile::tempdir().unwrap();
    let teacher = temporary.path().join("teacher");
    exported(&tiny(), &teacher);
    let with = |student: &str| {
        let mut overrides = tiny();
        let from = teacher.display();
        overrides.extend([
            format!("models.student.new.{student}"),
            format!("models.teacher={{from: {from}}}"),
            format!("models.critic={{from: {from}, rate: {{peak: 1.0e-3}}}}"),
            "method={name: dmd2, rollout: simulate, timesteps: [1000, 500]}".to_owned(),
            "levels={}".to_owned(),
        ]);
        overrides
    };
    let message = refused("quickstart.yaml", &with("prediction=velocity"));
    let want = "models.teacher has another process than models.student: the clean tokens of a flow, \
                not the velocity of a flow";
    assert!(message.contains(want), "{message}");
    // A student of another size may learn from it.
    build(&read("quickstart.yaml", &with("depth=1")), None).unwrap();

    // Words of another width, which no encoder tells of: the teacher is tried before the first step.
    let config = teacher.join("transformer/config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"text_width\": 64", "\"text_width\": 32")).unwrap();
    let message = refused("quickstart.yaml", &with("depth=1"));
    assert!(message.contains("models.teacher cannot see what models.student sees"), "{message}");
}
