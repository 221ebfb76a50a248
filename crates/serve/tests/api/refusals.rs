//! What cannot be is refused before it waits, with a message that helps.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve::Limits;

use crate::house::{House, Plot, long, png, small};
use crate::wire::{self, Part};

/// A field, what it is, which parameter the error names, and what it says.
type Case = (&'static str, Value, &'static str, &'static str);

#[test]
fn fields_that_cannot_be_are_named() {
    let house = House::open(Plot::default());
    let cases: [Case; 25] = [
        ("num_frames", json!(4), "num_frames", "1 or 5"),
        ("num_frames", json!("many"), "num_frames", "a whole number"),
        ("size", json!("33x32"), "width", "32"),
        ("size", json!("32 by 32"), "size", "832x480"),
        ("width", json!(32), "size", "one of them"),
        ("num_inference_steps", json!(0), "num_inference_steps", "choose 1"),
        ("num_inference_steps", json!(-3), "num_inference_steps", "a whole number"),
        ("guidance_scale", json!("nan"), "guidance_scale", "finite"),
        ("guidance_scale_2", json!(3), "guidance_scale_2", "one expert"),
        ("seed", json!("x"), "seed", "from 0 on"),
        ("flow_shift", json!(1e308), "flow_shift", "0.001 to 1000"),
        ("fps", json!(0), "fps", "above 0"),
        ("fps", json!(100_000), "fps", "1000"),
        ("seconds", json!("3"), "seconds", "num_frames is given too"),
        ("model", json!("wan-tini"), "model", "did you mean `wan-tiny`?"),
        ("prompt", json!("x".repeat(40_000)), "prompt", "32000 or fewer"),
        ("promt", json!("a fox"), "promt", "did you mean `prompt`?"),
        (
            "input_reference",
            json!("https://example.org/x.png"),
            "input_reference",
            "no URL is opened",
        ),
        (
            "input_reference",
            json!({ "file_id": "file-1" }),
            "input_reference[file_id]",
            "keeps no files",
        ),
        (
            "input_reference",
            json!("data:image/png;base64,AAAA"),
            "input_reference",
            "no file that is known",
        ),
        ("mask", json!("file:///etc/passwd"), "mask", "no URL is opened"),
        ("lora", json!("style"), "lora", "there is no `style`"),
        ("fit", json!("squeeze"), "fit", "stretch"),
        ("n", json!(2), "n", "leave it out"),
        ("reference_scale", json!(2), "reference_scale", "no reference"),
    ];
    for (field, value, param, word) in cases {
        let mut body = small("a fox");
        body[field] = value;
        let answer = house.post("/v1/videos", &body);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 400, "{field}: {text}");
        let error = answer.error();
        assert_eq!(error["param"], json!(param), "{text}");
        assert!(error["message"].as_str().unwrap().contains(word), "no `{word}` in {text}");
    }
    let empty = house.post("/v1/videos", &json!({}));
    assert_eq!((empty.status, &empty.error()["param"]), (400, &json!("prompt")));
    assert!(house.get("/v1/videos").json()["data"].as_array().unwrap().is_empty());
    assert!(house.folders().is_empty(), "what was refused leaves nothing");
}

#[test]
fn uploads_are_what_their_bytes_are() {
    let house = House::open(Plot { models: vec!["wan-tiny-i2v", "wan-tiny"], ..Plot::default() });
    let bomb = bomb();
    let cases: [(&[u8], &str); 5] = [
        (b"#EXTM3U\nfile:///etc/passwd\n", "no file that is known"),
        (b"PK\x03\x04zipzipzip", "no file that is known"),
        (b"\x89PNG\r\n\x1a\nbut no more", "cannot be read"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "give a picture"),
        (&bomb, "million pixels"),
    ];
    for (bytes, word) in cases {
        let parts = [
            Part::Text("prompt", "a fox"),
            Part::Text("size", "32x32"),
            Part::File("input_reference", bytes),
        ];
        let answer = house.post_form("/v1/videos", &parts);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(
            (answer.status, &answer.error()["param"]),
            (400, &json!("input_reference")),
            "{text}"
        );
        assert!(text.contains(word), "no `{word}` in {text}");
        assert!(
            !text.contains(&*house.folder.path().to_string_lossy()),
            "a path of the server: {text}"
        );
    }
    let picture = png(40, 40);
    let parts = [
        Part::Text("prompt", "a fox"),
        Part::Text("model", "wan-tiny"),
        Part::Text("size", "32x32"),
        Part::File("input_reference", &picture),
    ];
    let answer = house.post_form("/v1/videos", &parts);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 400 && text.contains("takes prompts alone"), "{text}");
    assert!(house.folders().is_empty());
}

/// A PNG file whose header says that it is huge.
fn bomb() -> Vec<u8> {
    let mut bytes = png(8, 8);
    bytes[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    // The checksum of the header's block.
    let crc = bytes[12..29].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    });
    bytes[29..33].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

/// Headers, a body, and the status that answers it.
type BadBody = (&'static [(&'static str, &'static str)], &'static [u8], u16);

#[test]
fn bodies_that_are_none_are_refused() {
    let house = House::open(Plot::default());
    const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
    let cases: [BadBody; 9] = [
        (JSON, b"{\"prompt\": ", 400),
        (JSON, b"[1, 2]", 400),
        (JSON, b"\xff\xfe", 400),
        (JSON, b"{\"prompt\": {\"a\": {\"b\": {\"c\": {\"d\": 1}}}}}", 400),
        (&[("Content-Type", "text/plain")], b"a fox", 415),
        (&[], b"a fox", 415),
        (&[("Content-Type", "multipart/form-data")], b"x", 400),
        (&[("Content-Type", "multipart/form-data; boundary=x")], b"--y\r\n", 400),
        (
            &[("Content-Type", "multipart/form-data; boundary=x")],
            b"--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ncut",
            400,
        ),
    ];
    for (headers, body, status) in cases {
        let answer = house.send("POST", "/v1/videos", headers, body);
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(body));
        answer.error();
    }
    for (method, path, status) in [
        ("PUT", "/v1/videos", 405),
        ("POST", "/v1/videos/video_1", 405),
        ("GET", "/v2/videos", 404),
        ("GET", "/v1/videos/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/videos/video_1/content", 404),
        ("GET", "/studio/../../../etc/passwd", 404),
        ("GET", "/studio/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/images/image_1/..%2f..%2fjobs.sqlite3", 404),
    ] {
        let answer = house.send(method, path, &[], b"");
        assert_eq!(answer.status, status, "{method} {path}");
        answer.error();
    }
}

#[test]
fn large_and_slow_bodies_end() {
    let limits = Limits {
        body: 64 << 10,
        receive: Duration::from_secs(1),
        idle: Duration::from_secs(1),
        ..Limits::default()
    };
    let house = House::open(Plot { limits, ..Plot::default() });
    let large = vec![b'x'; 128 << 10];
    let answer =
        house.post_form("/v1/videos", &[Part::Text("prompt", "a"), Part::File("mask", &large)]);
    assert_eq!(answer.status, 413, "{}", String::from_utf8_lossy(&answer.body));
    answer.error();
    let mut slow = TcpStream::connect(house.address).unwrap();
    let head = "POST /v1/videos HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).unwrap();
    let begun = Instant::now();
    let answer = wire::answer(&mut slow);
    assert_eq!(answer.status, 408);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Headers that do not end, and a connection that says nothing.
    for text in ["GET / HTTP/1.1\r\nX: ", ""] {
        let mut idle = TcpStream::connect(house.address).unwrap();
        idle.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        idle.write_all(text.as_bytes()).unwrap();
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut idle, &mut all).unwrap();
    }
    let huge =
        format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(wire::exchange(house.address, huge.as_bytes()).status, 431);
    assert_eq!(house.get("/health").status, 200);
}

#[test]
fn a_full_queue_says_so_and_recovers() {
    let house =
        House::open(Plot { limits: Limits { queue: 2, ..Limits::default() }, ..Plot::default() });
    let first = house.create(&long("a fox"));
    house.until(&first, |job| job["status"] == "in_progress");
    let waiting = [house.create(&small("a hen"))];
    // Of two places one is for somebody else.
    let full = house.post("/v1/videos", &small("a cow"));
    assert_eq!((full.status, &full.error()["code"]), (429, &json!("queue_full")));
    assert!(full.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!([house.get("/health").status, house.get("/ready").status], [200, 200]);
    house.delete(&format!("/v1/videos/{first}"));
    for id in waiting {
        assert_eq!(house.wait(&id)["status"], "completed");
    }
    assert_eq!(house.get("/ready").status, 200);
    house.wait(&house.create(&small("a cow")));
}

#[test]
fn work_and_time_are_bounded() {
    let limits = Limits { work: 32 * 32 * 5 * 2, ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    house.wait(&house.create(&small("a fox")));
    let mut body = small("a fox");
    body["num_frames"] = json!(9);
    let refused = house.post("/v1/videos", &body);
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("num_frames")));
    assert!(
        refused.error()["message"].as_str().unwrap().contains("5 frames would do"),
        "{:?}",
        refused.error()
    );
    let limits = Limits { stage: Duration::from_millis(300), ..Limits::default() };
    let house = House::open(Plot { limits, ..Plot::default() });
    let failed = house.wait(&house.create(&long("a fox")));
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("timeout")),
        "{failed}"
    );
    assert_eq!(
        house.get(&format!("/v1/videos/{}/content", failed["id"].as_str().unwrap())).status,
        404
    );
}
