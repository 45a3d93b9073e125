import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { failureOf, simulatedApi, type SimulatedApiOptions } from "../simulated-api.fixture.ts";
import { fileNameOf } from "./files-api.ts";

const png = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), Buffer.alloc(24)]);
png.writeUInt32BE(8, 16);
png.writeUInt32BE(8, 20);
const megabyte = 1024 * 1024;

/** What a person of the group sends, with the key of its file. */
async function sentFile(file: {
  bytes: Buffer | { sizeBytes: number };
  name: string;
  mediaType?: string;
}) {
  return await sent({ file });
}

async function sent(content: object, options: SimulatedApiOptions = {}) {
  const world = await simulatedApi(options);
  const { simulator, appId, chatId, person } = world;
  const { messageId } = await simulator.sendMessage({
    appId,
    chatId,
    from: person.openId,
    ...content,
  });
  const message = simulator.messages(chatId).find((candidate) => candidate.messageId === messageId);
  const { image_key: imageKey, file_key: fileKey } = JSON.parse(message?.content ?? "{}");
  return { ...world, messageId, key: String(fileKey ?? imageKey) };
}

describe("a download", () => {
  it("brings the bytes with their type and name", async () => {
    const bytes = Buffer.from("内容");
    const { api, messageId, key } = await sentFile({
      bytes,
      name: "报告 1.txt",
      mediaType: "text/plain",
    });
    const file = await api.files.download({ messageId, key, type: "file", maxBytes: 100 });
    expect(file).toEqual({ bytes, mediaType: "text/plain", fileName: "报告 1.txt" });
  });

  it("of an image is asked for as one", async () => {
    const { api, messageId, key } = await sent({ image: { bytes: png } });
    const image = await api.files.download({ messageId, key, type: "image", maxBytes: 100 });
    expect(image).toMatchObject({ bytes: png, mediaType: "image/png" });
    const wrong = api.files.download({ messageId, key, type: "file", maxBytes: 100 });
    expect(await failureOf(wrong)).toMatchObject({
      api: "im.messageResource.get",
      kind: "bad_request",
      code: 234003,
    });
  });

  it("of a file that looks like a refusal is the file", async () => {
    const bytes = Buffer.from('{"code":230002,"msg":"not a refusal"}');
    const { api, messageId, key } = await sentFile({
      bytes,
      name: "log.json",
      mediaType: "application/json",
    });
    expect(await api.files.download({ messageId, key, type: "file", maxBytes: 100 })).toMatchObject(
      { bytes },
    );
  });

  it("exactly as large as allowed is taken, one byte more is too large", async () => {
    const { api, messageId, key } = await sentFile({ bytes: Buffer.alloc(1_000), name: "a" });
    expect(
      (await api.files.download({ messageId, key, type: "file", maxBytes: 1_000 })).bytes,
    ).toHaveLength(1_000);
    const refused = await failureOf(
      api.files.download({ messageId, key, type: "file", maxBytes: 999 }),
    );
    expect(refused).toMatchObject({ kind: "too_large", retryable: false });
  });

  it("over 100 MB is too large for the platform itself", async () => {
    const { api, messageId, key } = await sentFile({
      bytes: { sizeBytes: 101 * megabyte },
      name: "a",
    });
    const refused = await failureOf(
      api.files.download({ messageId, key, type: "file", maxBytes: 1_000 * megabyte }),
    );
    expect(refused).toMatchObject({ kind: "too_large", code: 234037 });
  });

  it("stops reading at the limit where no length is given", async () => {
    const { url, written } = await endless();
    const { connect } = await simulatedApi();
    const api = connect({ domain: url });
    const maxBytes = 100_000;
    const refused = await failureOf(
      api.files.download({ messageId: "om_1", key: "file_1", type: "file", maxBytes }),
    );
    expect(refused.kind).toBe("too_large");
    expect(await written).toBeGreaterThan(maxBytes);
  });

  it("that is cut off or breaks down is tried again", async () => {
    const bytes = Buffer.alloc(200_000, "x");
    const { api, simulator, messageId, key } = await sentFile({ bytes, name: "a" });
    simulator.faults.add({
      times: 1,
      match: { path: /resources/ },
      action: { kind: "truncate", afterBytes: 10 },
    });
    simulator.faults.add({
      times: 1,
      match: { path: /resources/ },
      action: { kind: "respond", status: 502 },
    });
    expect(
      await api.files.download({ messageId, key, type: "file", maxBytes: megabyte }),
    ).toMatchObject({ bytes });
  });

  it("that trickles ends at its deadline, and at the caller's signal", async () => {
    const world = await sentFile({ bytes: Buffer.alloc(megabyte), name: "a" });
    const { simulator, messageId, key, connect } = world;
    const api = connect({ retry: { attempts: 1 } });
    simulator.faults.add({
      match: { path: /resources/ },
      action: { kind: "trickle", chunkBytes: 10, everyMs: 20 },
    });
    const request = { messageId, key, type: "file", maxBytes: 2 * megabyte } as const;
    expect(await failureOf(api.files.download({ ...request, timeoutMs: 200 }))).toMatchObject({
      kind: "unavailable",
    });
    const signal = AbortSignal.timeout(100);
    expect(await failureOf(api.files.download(request, { signal }))).toMatchObject({
      kind: "cancelled",
    });
  });

  it("of a message that is gone says so, and one with a made-up id never leaves", async () => {
    const { api, simulator, messageId, key } = await sentFile({ bytes: png, name: "a" });
    await simulator.recall(messageId);
    const request = { messageId, key, type: "file", maxBytes: 100 } as const;
    expect(await failureOf(api.files.download(request))).toMatchObject({ kind: "target_gone" });
    const before = simulator.apiCalls.length;
    expect(await failureOf(api.files.download({ ...request, key: "../x" }))).toMatchObject({
      kind: "bad_request",
    });
    expect(await failureOf(api.files.download({ ...request, messageId: "a/b" }))).toMatchObject({
      kind: "bad_request",
    });
    expect(simulator.apiCalls).toHaveLength(before);
  });
});

/** A platform whose files never end; resolves to how many bytes it got rid of when the reader left. */
async function endless(): Promise<{ url: string; written: Promise<number> }> {
  const left = Promise.withResolvers<number>();
  const flood = (response: ServerResponse): void => {
    let bytes = 0;
    const chunk = Buffer.alloc(16_384);
    const write = (): void => {
      while (!response.destroyed && response.write(chunk)) bytes += chunk.length;
      bytes += chunk.length;
    };
    response.on("drain", write);
    response.on("close", () => left.resolve(bytes));
    write();
  };
  const server = createServer((request, response) => {
    if (request.url?.includes("tenant_access_token") === true) {
      response.end(
        JSON.stringify({ code: 0, msg: "ok", tenant_access_token: "t-1", expire: 7200 }),
      );
      return;
    }
    response.writeHead(200, { "content-type": "application/octet-stream" });
    flood(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    written: left.promise,
  }; // a TCP server
}

describe("an upload", () => {
  it("of an image can be shown in a message", async () => {
    const { api, simulator, chatId } = await simulatedApi();
    const imageKey = await api.files.uploadImage(png);
    const content = JSON.stringify({ image_key: imageKey });
    await api.messages.send({
      receiveIdType: "chat_id",
      receiveId: chatId,
      messageType: "image",
      content,
      uuid: "u",
    });
    expect(simulator.messages(chatId)[0]).toMatchObject({ messageType: "image", content });
  });

  it("of a file keeps its name, whatever it holds", async () => {
    const { api, simulator, chatId } = await simulatedApi();
    const fileKey = await api.files.uploadFile({
      bytes: png,
      fileName: '报"告\r\n.pdf',
      fileType: "pdf",
    });
    const content = JSON.stringify({ file_key: fileKey });
    await api.messages.send({
      receiveIdType: "chat_id",
      receiveId: chatId,
      messageType: "file",
      content,
      uuid: "u",
    });
    expect(simulator.messages(chatId)[0]?.messageType).toBe("file");
  });

  it("that the platform cannot take says why", async () => {
    const { api } = await simulatedApi();
    expect(await failureOf(api.files.uploadImage(Buffer.from("no image")))).toMatchObject({
      kind: "bad_request",
      code: 234011,
    });
    expect(await failureOf(api.files.uploadImage(Buffer.alloc(0)))).toMatchObject({
      kind: "bad_request",
      code: 234010,
    });
    const large = api.files.uploadFile({
      bytes: Buffer.alloc(31 * megabyte),
      fileName: "a",
      fileType: "stream",
    });
    expect(await failureOf(large)).toMatchObject({ kind: "too_large", code: 234006 });
  });

  it("that breaks down is sent again whole", async () => {
    const { api, simulator } = await simulatedApi();
    simulator.faults.add({
      times: 1,
      match: { path: /images$/ },
      action: { kind: "respond", status: 500 },
    });
    expect(await api.files.uploadImage(png)).toMatch(/^img_/);
  });
});

describe("the name in a content disposition", () => {
  it.each([
    ["attachment; filename*=UTF-8''%E6%8A%A5%201.pdf", "报 1.pdf"],
    ['attachment; filename="a b.pdf"', "a b.pdf"],
    ["attachment; filename=%E6%8A%A5.pdf; x=1", "报.pdf"],
    ['attachment; filename="../../etc/passwd"', "passwd"],
    ["attachment; filename*=UTF-8''..%2F..%2Fx%00y", "xy"],
    ["attachment; filename=100%", "100%"],
    ["attachment", undefined],
    ["", undefined],
  ])("%j is %j", (disposition, name) => expect(fileNameOf(disposition)).toBe(name));
});
