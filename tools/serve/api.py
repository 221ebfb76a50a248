"""The pinned openai-python drives the whole API."""

import base64
import io
import struct
import zlib

import httpx2 as httpx
import openai


def png(width=32, height=32, colour=(200, 30, 60)):
    """The bytes of a picture of one colour."""
    row = b"\0" + bytes(colour) * width

    def block(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + block(b"IHDR", head) + block(b"IDAT", zlib.compress(row * height)) + block(b"IEND", b"")


def run(server, shapes, wan, picture):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    names = [model.id for model in client.models.list()]
    assert names == [shapes, wan, picture], names
    for model in (shapes, wan):
        videos(client, model, 8 if model == shapes else 5)
    conditions(client, server, shapes)
    images(client, picture)
    refusals(client)


def extra(**more):
    return {"num_inference_steps": 2, "seed": 7, **more}


def videos(client, model, frames):
    """Create, poll, list, download, delete, remix."""
    body = extra(num_frames=frames)
    video = client.videos.create_and_poll(prompt="a red circle moves left", model=model, size="32x32", extra_body=body)
    assert video.status == "completed" and video.progress == 100 and video.object == "video", video
    assert video.size == "32x32" and video.error is None and video.expires_at > video.completed_at, video
    clip = client.videos.download_content(video.id).read()
    assert clip[4:8] == b"ftyp", clip[:16]
    assert client.videos.download_content(video.id, variant="thumbnail").read()[8:12] == b"WEBP"
    assert client.videos.download_content(video.id, variant="spritesheet").read()[:3] == b"\xff\xd8\xff"
    again = client.videos.create_and_poll(prompt="a red circle moves left", model=model, size="32x32", extra_body=body)
    assert client.videos.download_content(again.id).read() == clip, "a seed is one clip"
    remix = client.videos.remix(video.id, prompt="a blue square moves up")
    assert remix.remixed_from_video_id == video.id and remix.prompt == "a blue square moves up", remix
    assert client.videos.poll(remix.id).status == "completed"
    rounded = client.videos.create(prompt="x", model=model, size="32x32", seconds="4", extra_body={"num_inference_steps": 1})
    assert abs(float(rounded.seconds) - 4) < 0.5, rounded
    client.videos.poll(rounded.id)
    all_ids = [video.id for video in client.videos.list(limit=1, order="asc")]
    assert all_ids[-4:] == [video.id, again.id, remix.id, rounded.id], all_ids
    running = client.videos.create(prompt="x", model=model, size="32x32", extra_body=extra(num_frames=frames) | {"num_inference_steps": 900})
    while client.videos.retrieve(running.id).status == "queued":
        pass
    deleted = client.videos.delete(running.id)
    assert deleted.deleted and deleted.object == "video.deleted" and deleted.id == running.id, deleted
    after = client.videos.create_and_poll(prompt="x", model=model, size="32x32", extra_body=body)
    assert after.status == "completed"
    for id in [*all_ids[-4:], after.id]:
        client.videos.delete(id)


def conditions(client, server, model):
    """Pictures, prefixes and masks, with a model that takes all of them."""
    body = extra(num_frames=8)
    picture = png()
    by_file = client.videos.create_and_poll(prompt="x", model=model, size="32x32", input_reference=("p.png", picture), extra_body=body)
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    by_url = client.videos.create_and_poll(prompt="x", model=model, size="32x32", extra_body={**body, "input_reference": {"image_url": url}})
    assert by_file.status == by_url.status == "completed"
    clips = [client.videos.download_content(video.id).read() for video in (by_file, by_url)]
    assert clips[0] == clips[1]
    # The library of this version refuses the reference that its types allow, so what it would send is sent by hand.
    form = {"prompt": (None, "x"), "seconds": (None, "1"), "model": (None, model), "video[id]": (None, by_file.id), "num_inference_steps": (None, "2")}
    longer = httpx.post(f"http://127.0.0.1:{server.port}/v1/videos/extensions", files=form)
    assert longer.status_code == 200, longer.text
    longer = client.videos.poll(longer.json()["id"])
    assert longer.status == "completed" and float(longer.seconds) > float(by_file.seconds), longer
    upload = client.videos.extend(prompt="x", seconds="1", video=("clip.mp4", clips[0]), extra_body={"model": model, "size": "32x32", "num_inference_steps": 2})
    assert client.videos.poll(upload.id).seconds == longer.seconds
    form = {"prompt": (None, "x"), "model": (None, model), "video[id]": (None, by_file.id), "num_inference_steps": (None, "2"), "mask": ("m.png", png(32, 32, (255, 255, 255)))}
    edited = httpx.post(f"http://127.0.0.1:{server.port}/v1/videos/edits", files=form)
    assert edited.status_code == 200, edited.text
    assert client.videos.poll(edited.json()["id"]).status == "completed"
    try:
        client.videos.edit(prompt="x", video=("clip.mp4", clips[0]), extra_body={"model": model})
        raise AssertionError("an edit without a mask was taken")
    except openai.BadRequestError as error:
        assert "mask" in str(error), error


def images(client, model):
    """Generate, stream, edit."""
    body = {"num_inference_steps": 4, "seed": 3}
    made = client.images.generate(prompt="a fox", model=model, size="32x32", n=2, response_format="b64_json", extra_body=body)
    pictures = [base64.b64decode(one.b64_json) for one in made.data]
    assert len(pictures) == 2 and all(one.startswith(b"\x89PNG") for one in pictures)
    by_url = client.images.generate(prompt="a fox", model=model, size="32x32", n=2, response_format="url", extra_body=body)
    assert [httpx.get(one.url).content for one in by_url.data] == pictures
    stream = client.images.generate(prompt="a fox", model=model, size="32x32", stream=True, partial_images=2, extra_body=body)
    events = list(stream)
    assert [event.type for event in events] == ["image_generation.partial_image"] * 2 + ["image_generation.completed"], events
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    assert base64.b64decode(events[2].b64_json) == pictures[0] and events[2].usage.total_tokens == 0
    try:
        client.images.edit(image=io.BytesIO(png()), prompt="a fox", model=model, size="32x32")
        raise AssertionError("a picture was taken by a model that takes none")
    except openai.BadRequestError as error:
        assert error.param == "input_reference", error.body


def refusals(client):
    """Errors are what the library makes of them."""
    for call, kind in [
        (lambda: client.videos.retrieve("video_none"), openai.NotFoundError),
        (lambda: client.videos.create(prompt="x", model="sora-2"), openai.BadRequestError),
        (lambda: client.videos.create(prompt="x", extra_body={"steps": 3}), openai.BadRequestError),
    ]:
        try:
            call()
            raise AssertionError("it was taken")
        except kind as error:
            assert error.code and error.type, error.body
