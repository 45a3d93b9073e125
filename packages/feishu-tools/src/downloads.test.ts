import { systemClock } from "@larkline/protocol/clock";
import { describe, expect, it } from "vitest";
import { tokenOf, toolWorld } from "./world.fixture.ts";

/** Waits are over at once. */
const clock = {
  ...systemClock,
  after: (ms: number, run: () => void) => systemClock.after(Math.min(ms, 2), run),
};
const png = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1");
const appId = "cli_0123456789abcdef";
const zone = "Asia/Shanghai";
const idIn = (text: string): string => /blob_[\w-]{43}/.exec(text)?.[0] ?? "";

describe("an export", () => {
  it("is waited for, and its file is kept under the document's name", async () => {
    const world = await toolWorld({ settings: { clock } });
    const { docs, exports } = world.platform.work;
    exports.setExportLooks(3);
    const { documentId } = docs.addDocument({ owner: world.ann, title: "Plan", markdown: "Goals" });
    const text = await world.textOf("export_document", {
      document: `https://acme.feishu.cn/docx/${documentId}`,
      format: "pdf",
    });
    const file = world.files.get(idIn(text));
    expect(file?.facts).toEqual({ mediaType: "application/pdf", name: "Plan.pdf" });
    expect(Buffer.from(file?.bytes ?? []).toString()).toBe("%PDF-1.7\nGoals");
    expect(text).toContain(`blob:${idIn(text)}`);
    const looks = world.platform.apiCalls.filter(({ path }) => path.includes("export_tasks/exp"));
    expect(looks).toHaveLength(4);
  });

  it("that takes long names its job, which a later call finds", async () => {
    let now = 0;
    const late = { ...clock, monotonic: () => (now += 20_000) };
    const world = await toolWorld({ settings: { clock: late } });
    const { sheets, exports } = world.platform.work;
    exports.setExportLooks(8);
    const { token } = sheets.addSpreadsheet({ owner: world.ann, title: "Costs", rows: [["a", 1]] });
    const document = `https://acme.feishu.cn/sheets/${token}`;
    const first = await world.textOf("export_document", { document, format: "xlsx" });
    const job = /job: "(\w+)"/.exec(first)?.[1];
    expect(first).toContain("not done yet");
    let text = first;
    for (let asked = 0; asked < 3 && text.includes("not done yet"); asked += 1) {
      text = await world.textOf("export_document", { document, format: "xlsx", job });
    }
    expect(world.files.get(idIn(text))?.facts.name).toBe("Costs.xlsx");
    const begun = world.platform.apiCalls.filter(({ path }) => path.endsWith("/export_tasks"));
    expect(begun).toHaveLength(1);
    // It is the job of the person who began it.
    const other = { person: world.bob };
    world.platform.work.share(token, world.bob, "view");
    expect(
      await world.call("export_document", { document, format: "xlsx", job }, other),
    ).toMatchObject({ ok: false, error: expect.stringContaining("no such export") as string });
  });

  it("that the platform ends says why, and a format that it does not have says which it has", async () => {
    const world = await toolWorld({ settings: { clock } });
    const { docs, exports } = world.platform.work;
    const { documentId: document } = docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "x",
    });
    expect(await world.call("export_document", { document, format: "csv" })).toMatchObject({
      ok: false,
      error: "Such a document can be exported as pdf or docx.",
    });
    exports.setExportState(107);
    expect(await world.call("export_document", { document, format: "pdf" })).toMatchObject({
      ok: false,
      error: "There is no export: the document is too large.",
    });
    expect(world.files.size).toBe(0);
  });
});

describe("a download", () => {
  it("gives text to read, shows pictures, and keeps other files", async () => {
    const { platform, textOf, files, ann } = await toolWorld();
    const { drive } = platform.work;
    const add = (name: string, content: object): string =>
      drive.addFile({ owner: ann, name, ...content }).token;
    const csv = await textOf("download_file", { file: add("data.csv", { text: "a,b\n1,夜" }) });
    expect(csv).toContain('from="data.csv">\na,b\n1,夜\n');
    expect(files.size).toBe(0);
    const map = await textOf("download_file", {
      file: add("map.png", { base64: png.toString("base64") }),
    });
    expect(map).toContain(`![map.png](blob:${idIn(map)})`);
    const zip = Buffer.from("PK\x03\x04\0\0\xff", "latin1");
    const link = `https://acme.feishu.cn/file/${add("all.zip", { base64: zip.toString("base64") })}`;
    const kept = await textOf("download_file", { file: link });
    expect(kept).toContain(`: blob:${idIn(kept)}`);
    expect(Buffer.from(files.get(idIn(kept))?.bytes ?? [])).toEqual(zip);
    expect(files.get(idIn(kept))?.facts.name).toBe("all.zip");
  });

  it("of more than 20 MB gives words, and is not read to its end", async () => {
    const { platform, call, ann } = await toolWorld();
    const text = "x".repeat(20 * 1024 * 1024 + 1);
    const { token } = platform.work.drive.addFile({ owner: ann, name: "big.txt", text });
    expect(await call("download_file", { file: token })).toMatchObject({
      ok: false,
      error: "The file has more than 20 MB: give the person its link.",
    });
    const downloads = platform.apiCalls.filter(({ path }) => path.endsWith("/download"));
    expect(downloads).toHaveLength(1);
  });
});

describe("an import", () => {
  it("is waited for, and makes a document, a spreadsheet or a Base of a file", async () => {
    const world = await toolWorld({ settings: { clock } });
    const { docs, drive, imports, sheets, tables } = world.platform.work;
    imports.setImportLooks(3);
    const add = (name: string, text: string): string =>
      drive.addFile({ owner: world.ann, name, text }).token;
    const made = await world.textOf("import_file", {
      file: add("plan.md", "# Goals\n\nShip it"),
      as: "document",
    });
    const id = /docx\/(\w+)$/.exec(made)?.[1] ?? "";
    expect(docs.documents.get(id)?.title).toBe("plan");
    expect(docs.markdown(id)).toBe("# Goals\n\nShip it");
    const csv = add("costs.csv", "What,Cost\nTea,3");
    await world.textOf("import_file", { file: csv, as: "spreadsheet", name: "Costs" });
    await world.textOf("import_file", { file: csv, as: "base" });
    expect([...sheets.spreadsheets.values()].map(({ title }) => title)).toEqual(["Costs"]);
    const [base] = tables.bases.values();
    expect([...(base?.tables.values() ?? [])][0]?.records[0]?.fields).toEqual({
      What: "Tea",
      Cost: "3",
    });
    expect(await world.call("import_file", { file: csv, as: "document" })).toMatchObject({
      ok: false,
      error: 'A file "costs.csv" can become spreadsheet or base.',
    });
  });

  it("that takes long names its job; one that the platform ends says why", async () => {
    let now = 0;
    const late = { ...clock, monotonic: () => (now += 20_000) };
    const world = await toolWorld({ settings: { clock: late } });
    const { drive, imports } = world.platform.work;
    imports.setImportLooks(8);
    const { token: file } = drive.addFile({ owner: world.ann, name: "a.txt", text: "x" });
    const first = await world.textOf("import_file", { file, as: "document" });
    expect(first).toContain("not done yet");
    const job = /job: "(\w+)"/.exec(first)?.[1];
    let text = first;
    for (let asked = 0; asked < 3 && text.includes("not done yet"); asked += 1) {
      text = await world.textOf("import_file", { file, as: "document", job });
    }
    expect(text).toContain("Imported: https://");
    expect(
      await world.call("import_file", { file, as: "document", job }, { person: world.bob }),
    ).toMatchObject({ ok: false, error: expect.stringContaining("no such import") as string });
    imports.setImportState(100);
    imports.setImportLooks(0);
    expect(await world.call("import_file", { file, as: "document" })).toMatchObject({
      ok: false,
      error: "There is no import: the file is encrypted.",
    });
    expect(world.platform.work.changes.map(({ kind }) => kind)).toEqual(["drive.import"]);
  });
});

describe("a file of a message", () => {
  const pdf = Buffer.from("%PDF-1.7\nplan\xff", "latin1");

  async function chatWorld() {
    const world = await toolWorld();
    const { chatId } = world.platform.addChat({
      type: "group",
      name: "Team",
      members: [world.ann],
    });
    const send = async (message: object): Promise<string> =>
      (await world.platform.sendMessage({ chatId, from: world.ann, appId, ...message })).messageId;
    const { documentId, blocks } = world.platform.work.docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "one\n\ntwo",
    });
    const after_block = blocks.get(documentId)?.children?.[0];
    return { ...world, chatId, send, document: documentId, after_block };
  }

  it("is found in the chat of the conversation, and fetched as the person may read it", async () => {
    const { textOf, call, send, files, chatId, bob } = await chatWorld();
    const file = await send({ file: { bytes: pdf, name: "plan.pdf" } });
    const picture = await send({ image: { bytes: png } });
    const history = await textOf("read_messages", { chat: "here", time_zone: zone }, { chatId });
    expect(history).toContain(`(${file}): [file: plan.pdf]`);
    expect(history).toContain(`(${picture}): [image]`);
    const kept = await textOf("download_file", { file });
    expect(Buffer.from(files.get(idIn(kept))?.bytes ?? [])).toEqual(pdf);
    expect(files.get(idIn(kept))?.facts.name).toBe("plan.pdf");
    expect(await textOf("download_file", { file: picture })).toContain("![picture.png](blob:");
    const text = await send({ text: "no file" });
    expect(await call("download_file", { file: text })).toMatchObject({
      ok: false,
      error: "The message has no such file.",
    });
    expect(await call("download_file", { file }, { person: bob })).toMatchObject({
      ok: false,
      error: "The person is not in the chat of this message. (code 230002)",
    });
  });

  it("comes into a document as a picture or as an attachment, in three steps each", async () => {
    const { platform, textOf, call, send, document, after_block } = await chatWorld();
    const { docs } = platform.work;
    const file = await send({ file: { bytes: pdf, name: "plan.pdf" } });
    const post = await send({
      post: {
        content: [
          [
            { tag: "img", image: { bytes: png } },
            { tag: "img", image: { bytes: png } },
          ],
        ],
      },
    });
    await textOf("attach_file", { document, file });
    const several = await call("add_picture", { document, picture: post });
    expect(JSON.stringify(several)).toContain("has several files: name one of");
    const picture = /name one of (om_\S+?),/.exec(JSON.stringify(several))?.[1];
    await textOf("add_picture", { document, picture, after_block });
    const [first, second] = docs.pictures.keys();
    expect(docs.markdown(document)).toBe(
      `one\n\n![picture.png](${second})\n\ntwo\n\n[plan.pdf](${first})`,
    );
    expect(docs.pictures.get(first ?? "")?.base64).toBe(pdf.toString("base64"));
  });

  it("asks for what reading it takes, and not for the right to send", async () => {
    const { platform, call, send } = await chatWorld();
    const file = await send({ file: { bytes: pdf, name: "plan.pdf" } });
    const { openId } = platform.addUser({ name: "Cat" });
    const person = await tokenOf(platform, openId, ["drive:file:download"]);
    expect(await call("download_file", { file }, { person })).toMatchObject({
      ok: false,
      grant: {
        kind: "scopes",
        scopes: [
          "im:message:readonly",
          "im:message.group_msg:get_as_user",
          "im:message.p2p_msg:get_as_user",
        ],
      },
    });
  });
});

it("a picture of the drive comes behind a block, in three steps, and a file that is none does not", async () => {
  const { platform, textOf, call, ann } = await toolWorld();
  const { docs, drive } = platform.work;
  const { documentId, blocks } = docs.addDocument({
    owner: ann,
    title: "Plan",
    markdown: "one\ntwo",
  });
  const after_block = blocks.get(documentId)?.children?.[0];
  const picture = drive.addFile({ owner: ann, name: "map.png", base64: png.toString("base64") });
  await textOf("add_picture", { document: documentId, picture: picture.token, after_block });
  const [token] = docs.pictures.keys();
  expect(docs.markdown(documentId)).toBe(`one\n\n![map.png](${token})\n\ntwo`);
  const steps = platform.apiCalls
    .filter(({ method, path }) => method !== "GET" && /blocks|medias/.test(path))
    .map(
      ({ method, path }) =>
        `${method} ${path
          .split("/")
          .at(-1)
          ?.replace(/^blk.*/, "<block>")}`,
    );
  expect(steps).toEqual(["POST children", "POST upload_all", "PATCH <block>"]);
  const text = drive.addFile({ owner: ann, name: "notes.md", text: "x" });
  expect(await call("add_picture", { document: documentId, picture: text.token })).toMatchObject({
    ok: false,
    error: '"notes.md" is no picture of at most 10 MB.',
  });
});
