//! `/v1/videos` from the first call to the last.

use serde_json::{Value, json};

use crate::house::{House, Plot, long, png, small};
use crate::wire::Part;

#[test]
fn a_clip_is_asked_for_made_and_fetched() {
    let house = House::open(Plot::default());
    let answer = house.post("/v1/videos", &small("a fox"));
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let video = answer.json();
    let want = [("object", json!("video")), ("model", json!("wan-tiny")), ("size", json!("32x32"))];
    for (field, want) in want {
        assert_eq!(video[field], want, "{field}");
    }
    assert!(["queued", "in_progress"].contains(&video["status"].as_str().unwrap()), "{video}");
    assert!(answer.header("openai-poll-after-ms").is_some());
    // 5 frames at 16 a second.
    assert_eq!((&video["seconds"], &video["num_frames"]), (&json!("0.312"), &json!(5)));
    let id = video["id"].as_str().unwrap();
    let done = house.wait(id);
    assert_eq!((&done["status"], &done["progress"]), (&json!("completed"), &json!(100)), "{done}");
    assert!(
        done["completed_at"].is_i64() && done["expires_at"].is_i64() && done["error"].is_null()
    );
    for stage in ["encode", "denoise", "decode"] {
        assert!(done["stage_durations"][stage].as_f64().is_some(), "{stage}: {done}");
    }
    let content = format!("/v1/videos/{id}/content");
    let clip = house.get(&content);
    assert_eq!((clip.status, clip.header("content-type")), (200, Some("video/mp4")));
    assert_eq!(&clip.body[4..8], b"ftyp");
    let still = house.get(&format!("{content}?variant=thumbnail"));
    assert_eq!((&still.body[..4], &still.body[8..12]), (&b"RIFF"[..], &b"WEBP"[..]));
    assert_eq!(&house.get(&format!("{content}?variant=spritesheet")).body[..3], b"\xff\xd8\xff");
    assert_eq!(house.get(&format!("{content}?variant=audio")).status, 404);
    assert_eq!(house.get(&format!("{content}?variant=film")).status, 400);
    let part = house.send("GET", &content, &[("Range", "bytes=4-7")], b"");
    assert_eq!((part.status, &part.body[..]), (206, &b"ftyp"[..]));
    let range = format!("bytes 4-7/{}", clip.body.len());
    assert_eq!(part.header("content-range"), Some(range.as_str()));
    let beyond = house.send("GET", &content, &[("Range", "bytes=99999999-")], b"");
    assert_eq!(beyond.status, 416);
    let gone = house.delete(&format!("/v1/videos/{id}")).json();
    assert_eq!(gone, json!({ "id": id, "object": "video.deleted", "deleted": true }));
    assert_eq!(house.get(&format!("/v1/videos/{id}")).status, 404);
    assert!(house.folders().is_empty());
}

/// The same seed is the same clip, by JSON and by a form, and another seed is another.
#[test]
fn a_seed_is_one_clip() {
    let house = House::open(Plot::default());
    let clip = |id: &str| {
        house.wait(id);
        house.get(&format!("/v1/videos/{id}/content")).body
    };
    let first = clip(&house.create(&small("a fox")));
    let form = house.post_form(
        "/v1/videos",
        &[
            Part::Text("prompt", "a fox"),
            Part::Text("size", "32x32"),
            Part::Text("num_frames", "5"),
            Part::Text("num_inference_steps", "2"),
            Part::Text("seed", "7"),
        ],
    );
    assert_eq!(first, clip(form.json()["id"].as_str().unwrap()));
    let mut other = small("a fox");
    other["seed"] = json!(8);
    assert_ne!(first, clip(&house.create(&other)));
}

#[test]
fn a_clip_begins_with_a_picture() {
    let house = House::open(Plot { models: vec!["wan-tiny-i2v"], ..Plot::default() });
    let texts = [
        Part::Text("prompt", "a fox"),
        Part::Text("size", "32x32"),
        Part::Text("num_frames", "5"),
        Part::Text("num_inference_steps", "2"),
        Part::Text("seed", "7"),
    ];
    let without = house.post_form("/v1/videos", &texts);
    assert_eq!((without.status, &without.error()["param"]), (400, &json!("input_reference")));
    let picture = png(40, 40);
    let mut with: Vec<Part<'_>> = Vec::from(texts);
    with.push(Part::File("input_reference", &picture));
    let made = house.post_form("/v1/videos", &with);
    assert_eq!(made.status, 200, "{}", String::from_utf8_lossy(&made.body));
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(house.wait(&id)["status"], "completed");
    // A data URL is the same picture, and a remix has it too.
    let mut body = small("a fox");
    body["input_reference"] =
        json!({ "image_url": format!("data:image/png;base64,{}", base64(&picture)) });
    let by_url = house.create(&body);
    house.wait(&by_url);
    let clip = |id: &str| house.get(&format!("/v1/videos/{id}/content")).body;
    assert_eq!(clip(&id), clip(&by_url));
    let remix = house.post(&format!("/v1/videos/{id}/remix"), &json!({ "prompt": "a hen" })).json();
    assert_eq!(remix["remixed_from_video_id"], json!(id), "{remix}");
    assert_eq!((&remix["seed"], &remix["prompt"]), (&json!(7), &json!("a hen")));
    assert_eq!(house.wait(remix["id"].as_str().unwrap())["status"], "completed");
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn seconds_are_rounded_to_what_can_be_made() {
    let house = House::open(Plot::default());
    for (seconds, frames, told) in [("1", 17, "1.062"), ("0.1", 1, "0.062"), ("4", 65, "4.062")] {
        let body = json!({ "prompt": "a fox", "size": "16x16", "seconds": seconds, "num_inference_steps": 1 });
        let video = house.post("/v1/videos", &body).json();
        assert_eq!(
            (&video["num_frames"], &video["seconds"]),
            (&json!(frames), &json!(told)),
            "{seconds}"
        );
        house.delete(&format!("/v1/videos/{}", video["id"].as_str().unwrap()));
    }
}

#[test]
fn lists_have_pages() {
    let house = House::open(Plot::default());
    // Nothing is made while the first takes its time.
    let ids: Vec<String> = (0..5).map(|_| house.create(&long("a fox"))).collect();
    let page = |query: &str| house.get(&format!("/v1/videos{query}")).json();
    let names = |page: &Value| -> Vec<String> {
        let data = page["data"].as_array().unwrap();
        data.iter().map(|video| video["id"].as_str().unwrap().to_owned()).collect()
    };
    let mut seen = Vec::new();
    let mut query = "?limit=2&order=asc".to_owned();
    loop {
        let page = page(&query);
        let own = names(&page);
        assert_eq!(
            (&page["first_id"], &page["last_id"]),
            (&json!(own[0]), &json!(own[own.len() - 1]))
        );
        seen.extend(own);
        if page["has_more"] == json!(false) {
            break;
        }
        query = format!("?limit=2&order=asc&after={}", seen[seen.len() - 1]);
    }
    assert_eq!(seen, ids);
    seen.reverse();
    assert_eq!(names(&page("")), seen);
    for bad in ["?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=video_x", "?page=2"] {
        assert_eq!(house.get(&format!("/v1/videos{bad}")).status, 400, "{bad}");
    }
    let empty = House::open(Plot::default()).get("/v1/videos").json();
    assert_eq!(
        empty,
        json!({ "object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false })
    );
}

/// A job that runs is given up at its next step, and the next one begins.
#[test]
fn a_running_job_is_given_up() {
    let house = House::open(Plot::default());
    let long = house.create(&long("a fox"));
    let next = house.create(&small("a hen"));
    house.until(&long, |job| job["progress"].as_u64().unwrap() > 0);
    let begun = std::time::Instant::now();
    assert_eq!(house.delete(&format!("/v1/videos/{long}")).json()["deleted"], json!(true));
    assert_eq!(house.wait(&next)["status"], "completed");
    assert!(begun.elapsed().as_secs() < 30, "the other went on");
    assert_eq!(house.folders(), [next]);
}

#[test]
fn events_tell_how_a_job_gets_on() {
    let house = House::open(Plot::default());
    let id = house.create(&small("a fox"));
    let events = house.get(&format!("/v1/videos/{id}/events"));
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(events.body).unwrap();
    assert!(text.contains("event: completed\n"), "{text}");
    assert_eq!(house.get("/v1/videos/video_none/events").status, 404);
}

/// A LoRA of one matrix, as diffusers would write it: the bytes of a safetensors file.
fn lora(level: f32) -> Vec<u8> {
    const WIDTH: usize = 24;
    const RANK: usize = 2;
    let layer = "transformer.blocks.0.attn1.to_q";
    let bytes = 4 * WIDTH * RANK;
    let head = json!({
        format!("{layer}.lora_A.weight"): { "dtype": "F32", "shape": [RANK, WIDTH], "data_offsets": [0, bytes] },
        format!("{layer}.lora_B.weight"): { "dtype": "F32", "shape": [WIDTH, RANK], "data_offsets": [bytes, 2 * bytes] },
    });
    let head = head.to_string().into_bytes();
    let values = (0..2 * WIDTH * RANK).flat_map(|at| (level * (at % 7) as f32).to_le_bytes());
    [&(head.len() as u64).to_le_bytes(), &head[..], &values.collect::<Vec<u8>>()].concat()
}

#[test]
fn loras_are_known_by_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("style.safetensors"), lora(0.1)).unwrap();
    let house = House::open(Plot { loras: Some(folder.path().to_owned()), ..Plot::default() });
    let names = house.get("/v1/loras").json();
    let names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|own| own["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["style"]);
    let clip = |lora: Value| {
        let mut body = small("a fox");
        body["lora"] = lora;
        let id = house.create(&body);
        house.wait(&id);
        house.get(&format!("/v1/videos/{id}/content")).body
    };
    let plain = clip(Value::Null);
    let changed = clip(json!({ "name": "style", "scale": 4.0 }));
    assert_ne!(plain, changed);
    // The base is what it was, and so is the LoRA.
    assert_eq!(plain, clip(Value::Null));
    assert_eq!(changed, clip(json!([{ "name": "style", "scale": 4.0 }])));
    // Another file under the name is another LoRA.
    std::fs::write(folder.path().join("other"), lora(0.3)).unwrap();
    std::fs::rename(folder.path().join("other"), folder.path().join("style.safetensors")).unwrap();
    let other = clip(json!({ "name": "style", "scale": 4.0 }));
    assert!(other != changed && other != plain, "the file before it is used");
    for (lora, word) in [
        (json!("stile"), "did you mean `style`?"),
        (json!({ "path": "/etc/passwd" }), "no path"),
        (json!("../style"), "there is no"),
    ] {
        let mut body = small("a fox");
        body["lora"] = lora;
        let refused = house.post("/v1/videos", &body);
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("lora")));
        let path = folder.path().display().to_string();
        assert!(!refused.error().to_string().contains(&path), "a path of the server");
        assert!(
            refused.error()["message"].as_str().unwrap().contains(word),
            "{:?}",
            refused.error()
        );
    }
}
