import { expect, test } from "vitest";
import type { PersonMessage } from "./index.ts";
import { app, personWorld, type PersonWorld } from "./person-world.fixture.ts";

const png = pictureOf(8, 8);
const toChat = "/open-apis/im/v1/messages?receive_id_type=chat_id";

function pictureOf(width: number, height: number): Uint8Array {
  const head = Buffer.alloc(32);
  head.write("\x89PNG\r\n\x1a\n", "latin1");
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return head;
}

/** A person sends it in the p2p chat; tells the message and the key in its content. */
async function write(world: PersonWorld, written: Partial<PersonMessage>, chatId = world.direct) {
  const { messageId } = await world.simulator.sendMessage({
    appId: app.appId,
    chatId,
    from: world.ann,
    ...written,
  });
  const message = world.simulator
    .messages(chatId)
    .find((candidate) => candidate.messageId === messageId);
  const content = JSON.parse(message?.content ?? "{}") as { image_key?: string; file_key?: string };
  return { messageId, key: content.file_key ?? content.image_key ?? "", ...content };
}

const resource = (messageId: string, key: string, type: string): string =>
  `/open-apis/im/v1/messages/${messageId}/resources/${key}?type=${type}`;

/** A call whose answer may be a file. */
async function get(world: PersonWorld, path: string, client = world.client) {
  const response = await fetch(world.simulator.url + path, {
    headers: { authorization: `Bearer ${client.token}` },
    signal: AbortSignal.timeout(60_000),
  });
  return response;
}

async function codeOf(world: PersonWorld, path: string, client = world.client): Promise<unknown> {
  const response = await get(world, path, client);
  return ((await response.json()) as { code: unknown }).code;
}

async function upload(
  world: PersonWorld,
  path: "images" | "files",
  fields: Record<string, string | Uint8Array>,
) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "string") form.append(name, value);
    else form.append(name, new Blob([new Uint8Array(value)]), "upload.bin");
  }
  const response = await fetch(`${world.simulator.url}/open-apis/im/v1/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${world.client.token}` },
    body: form,
    signal: AbortSignal.timeout(60_000),
  });
  const body = (await response.json()) as {
    code: number;
    data?: { image_key?: string; file_key?: string };
  };
  return { code: body.code, key: body.data?.image_key ?? body.data?.file_key ?? "" };
}

const uploadFile = (world: PersonWorld, fileType: string) =>
  upload(world, "files", { file_type: fileType, file_name: "a", file: png });

test("an image is downloaded with its type and length", async () => {
  const world = await personWorld();
  const { messageId, key } = await write(world, { image: { bytes: png } });
  const response = await get(world, resource(messageId, key, "image"));
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("image/png");
  expect(response.headers.get("content-length")).toBe("32");
  expect(new Uint8Array(await response.arrayBuffer())).toEqual(new Uint8Array(png));
});

test("a file is downloaded with its name, and audio and video as files", async () => {
  const world = await personWorld();
  const file = await write(world, {
    file: { bytes: png, name: "报告 1.pdf", mediaType: "application/pdf" },
  });
  const response = await get(world, resource(file.messageId, file.key, "file"));
  expect(response.headers.get("content-type")).toBe("application/pdf");
  expect(response.headers.get("content-disposition")).toBe(
    `attachment; filename*=UTF-8''${encodeURIComponent("报告 1.pdf")}`,
  );
  const audio = await write(world, { audio: { bytes: png, durationMs: 1 } });
  const video = await write(world, { media: { bytes: png, durationMs: 1, cover: { bytes: png } } });
  const statuses = [
    (await get(world, resource(audio.messageId, audio.key, "file"))).status,
    (await get(world, resource(video.messageId, video.key, "file"))).status,
    (await get(world, resource(video.messageId, video.image_key ?? "", "image"))).status,
  ];
  expect(statuses).toEqual([200, 200, 200]);
});

test("pictures of a post are downloaded by the post", async () => {
  const world = await personWorld();
  const { messageId } = await write(world, {
    post: { content: [[{ tag: "img", image: { bytes: png } }]] },
  });
  const content = world.simulator.messages(world.direct)[0]?.content ?? "";
  const key = /img_[\w-]+/.exec(content)?.[0] ?? "";
  expect((await get(world, resource(messageId, key, "image"))).status).toBe(200);
});

test("a key of another message, of the other type, or of nothing is not in the message", async () => {
  const world = await personWorld();
  const one = await write(world, { image: { bytes: png } });
  const two = await write(world, { image: { bytes: png } });
  const codes = [
    await codeOf(world, resource(one.messageId, two.key, "image")),
    await codeOf(world, resource(one.messageId, one.key, "file")),
    await codeOf(world, resource(one.messageId, "img_unknown", "image")),
    await codeOf(world, resource(one.messageId, one.key, "picture")),
  ];
  expect(codes).toEqual([234003, 234003, 234003, 234001]);
});

test("stickers, folders, cards and forwarded messages with what they hold have no downloads", async () => {
  const world = await personWorld();
  const sticker = await write(world, { messageType: "sticker" });
  const folder = await write(world, { folder: { name: "f" } });
  const card = await write(world, { messageType: "interactive", content: { image_key: "img_x" } });
  const image = await write(world, { image: { bytes: png } });
  const forward = await write(world, { forward: [image.messageId] });
  const read = await world.client.call("GET", `/open-apis/im/v1/messages/${forward.messageId}`);
  const child = (read.data.items as { message_id: string }[])[1]?.message_id ?? "";
  const codes = [
    await codeOf(world, resource(sticker.messageId, sticker.key, "file")),
    await codeOf(world, resource(folder.messageId, folder.key, "file")),
    await codeOf(world, resource(card.messageId, "img_x", "image")),
    await codeOf(world, resource(forward.messageId, image.key, "image")),
    await codeOf(world, resource(child, image.key, "image")),
  ];
  expect(codes).toEqual([234043, 234043, 234043, 234043, 234043]);
});

test("restricted chats, foreign chats, hidden and recalled messages give no files", async () => {
  const world = await personWorld();
  const { messageId, key } = await write(world, { image: { bytes: png } });
  const path = resource(messageId, key, "image");
  expect(await codeOf(world, path, world.other)).toBe(230002);
  world.simulator.hideMessage(messageId);
  expect(await codeOf(world, path)).toBe(234040);
  world.simulator.hideMessage(messageId, false);
  world.simulator.updateChat(world.direct, { restricted: true });
  expect(await codeOf(world, path)).toBe(234038);
  world.simulator.updateChat(world.direct, { restricted: false });
  expect((await get(world, path)).status).toBe(200);
  await world.simulator.recall(messageId);
  expect(await codeOf(world, path)).toBe(230110);
  expect(await codeOf(world, resource("om_unknown", key, "image"))).toBe(230110);
});

test("a file over 100 MB is not downloaded; a large one is streamed whole", async () => {
  const world = await personWorld();
  const limit = 100 * 1024 * 1024;
  const over = await write(world, { file: { bytes: { sizeBytes: limit + 1 }, name: "a" } });
  expect(await codeOf(world, resource(over.messageId, over.key, "file"))).toBe(234037);
  const large = await write(world, { file: { bytes: { sizeBytes: 5_000_001 }, name: "b" } });
  const response = await get(world, resource(large.messageId, large.key, "file"));
  expect(response.headers.get("content-length")).toBe("5000001");
  expect((await response.arrayBuffer()).byteLength).toBe(5_000_001);
});

const downloads = { path: /\/resources\// };

test("a trickling download comes in pieces, and whole", async () => {
  const world = await personWorld();
  const { messageId, key } = await write(world, { file: { bytes: png, name: "a" } });
  world.simulator.faults.add({
    match: downloads,
    action: { kind: "trickle", chunkBytes: 10, everyMs: 15 },
  });
  const response = await get(world, resource(messageId, key, "file"));
  const sizes: number[] = [];
  for await (const chunk of response.body ?? []) sizes.push(chunk.length);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(32);
  expect(sizes.length).toBeGreaterThan(1);
});

test("a truncated download announces more than it brings", async () => {
  const world = await personWorld();
  const { messageId, key } = await write(world, { file: { bytes: png, name: "a" } });
  world.simulator.faults.add({ match: downloads, action: { kind: "truncate", afterBytes: 10 } });
  const response = await get(world, resource(messageId, key, "file"));
  expect(response.headers.get("content-length")).toBe("32");
  await expect(response.arrayBuffer()).rejects.toThrow("terminated");
});

test("a flood has no length and ends where it is set to, or never", async () => {
  const world = await personWorld();
  const { messageId, key } = await write(world, { file: { bytes: png, name: "a" } });
  const path = resource(messageId, key, "file");
  world.simulator.faults.add({
    match: downloads,
    times: 1,
    action: { kind: "flood", sizeBytes: 3_000_000 },
  });
  const bounded = await get(world, path);
  expect(bounded.headers.get("content-length")).toBeNull();
  expect((await bounded.arrayBuffer()).byteLength).toBe(3_000_000);
  world.simulator.faults.add({ match: downloads, times: 1, action: { kind: "flood" } });
  const endless = await get(world, path);
  let size = 0;
  for await (const chunk of endless.body ?? []) {
    size += chunk.length;
    if (size > 10_000_000) break;
  }
  expect(size).toBeGreaterThan(10_000_000);
});

test("an uploaded image is sent, and read back by its app only", async () => {
  const world = await personWorld();
  const { code, key } = await upload(world, "images", { image_type: "message", image: png });
  expect(code).toBe(0);
  const body = {
    receive_id: world.group,
    msg_type: "image",
    content: JSON.stringify({ image_key: key }),
  };
  expect((await world.client.call("POST", toChat, body)).code).toBe(0);
  const path = `/open-apis/im/v1/images/${key}`;
  expect((await get(world, path)).headers.get("content-type")).toBe("image/png");
  expect(await codeOf(world, path, world.other)).toBe(234008);
  expect(await codeOf(world, "/open-apis/im/v1/images/img_unknown")).toBe(234001);
  expect((await world.other.call("POST", toChat, body)).code).toBe(230017);
});

test("an uploaded file keeps its name and bytes", async () => {
  const world = await personWorld();
  const { key } = await upload(world, "files", {
    file_type: "pdf",
    file_name: "报告.pdf",
    duration: "5",
    file: png,
  });
  const response = await get(world, `/open-apis/im/v1/files/${key}`);
  expect(response.headers.get("content-disposition")).toContain(encodeURIComponent("报告.pdf"));
  expect(new Uint8Array(await response.arrayBuffer())).toEqual(new Uint8Array(png));
  expect(await codeOf(world, `/open-apis/im/v1/files/${key}`, world.other)).toBe(234008);
});

test.each<[string, "images" | "files", Record<string, string | Uint8Array>, number]>([
  ["an image without a type", "images", { image: png }, 234001],
  ["an image that is text", "images", { image_type: "message", image: "text" }, 234011],
  ["an empty image", "images", { image_type: "message", image: new Uint8Array(0) }, 234010],
  [
    "an image over 10 MB",
    "images",
    { image_type: "message", image: sized(10 * 1024 * 1024 + 1) },
    234006,
  ],
  ["an image of no known format", "images", { image_type: "message", image: sized(10) }, 234011],
  [
    "an image over 12,000 pixels",
    "images",
    { image_type: "message", image: pictureOf(12_001, 1) },
    234039,
  ],
  [
    "an avatar over 4,096 pixels",
    "images",
    { image_type: "avatar", image: pictureOf(1, 4097) },
    234039,
  ],
  ["a file of an unknown type", "files", { file_type: "exe", file_name: "a", file: png }, 234001],
  ["a file without a name", "files", { file_type: "stream", file: png }, 234001],
  [
    "a duration that is no number",
    "files",
    { file_type: "opus", file_name: "a", duration: "x", file: png },
    234001,
  ],
  [
    "an empty file",
    "files",
    { file_type: "stream", file_name: "a", file: new Uint8Array(0) },
    234010,
  ],
  [
    "a file over 30 MB",
    "files",
    { file_type: "stream", file_name: "a", file: sized(30 * 1024 * 1024 + 1) },
    234006,
  ],
])("%s is refused", async (...[, path, fields, code]) => {
  const world = await personWorld();
  expect((await upload(world, path, fields)).code).toBe(code);
});

function sized(sizeBytes: number): Uint8Array {
  return new Uint8Array(sizeBytes);
}

test("a form that cannot be read is refused", async () => {
  const world = await personWorld();
  const response = await fetch(`${world.simulator.url}/open-apis/im/v1/images`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${world.client.token}`,
      "content-type": "multipart/form-data; boundary=x",
    },
    body: "no parts here",
  });
  expect(await response.json()).toMatchObject({ code: 234001 });
  const json = await world.client.call("POST", "/open-apis/im/v1/files", {
    file_type: "stream",
    file_name: "a",
  });
  expect(json.code).toBe(234001);
});

test.each([
  ["opus", "audio", 0],
  ["opus", "file", 230055],
  ["mp4", "media", 0],
  ["mp4", "audio", 230055],
  ["pdf", "file", 0],
  ["stream", "media", 230055],
])("a file uploaded as %s and sent as %s answers %i", async (fileType, messageType, code) => {
  const world = await personWorld();
  const { key } = await uploadFile(world, fileType);
  const content = JSON.stringify({ file_key: key });
  const answer = await world.client.call("POST", toChat, {
    receive_id: world.group,
    msg_type: messageType,
    content,
  });
  expect(answer.code).toBe(code);
});

test("unknown keys are not sent, stickers of others are", async () => {
  const world = await personWorld();
  const sticker = await write(world, { messageType: "sticker" });
  const send = async (messageType: string, content: object) => {
    const body = {
      receive_id: world.group,
      msg_type: messageType,
      content: JSON.stringify(content),
    };
    return (await world.client.call("POST", toChat, body)).code;
  };
  const image = await upload(world, "images", { image_type: "message", image: png });
  const post = (key: string) => ({
    zh_cn: { title: "", content: [[{ tag: "img", image_key: key }]] },
  });
  const codes = [
    await send("image", { image_key: "img_unknown" }),
    await send("file", { file_key: "file_unknown" }),
    await send("sticker", { file_key: "file_unknown" }),
    await send("post", post("img_unknown")),
    await send("sticker", { file_key: sticker.key }),
    await send("post", post(image.key)),
  ];
  expect(codes).toEqual([230001, 230001, 230001, 230001, 0, 0]);
});
