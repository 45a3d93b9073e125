import { expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

it("lists folders, and makes, fills, copies and moves what is in them", async () => {
  const { platform, call, textOf, ann } = await toolWorld();
  const { drive, docs } = platform.work;
  const folder = drive.addFile({ owner: ann, name: "Old", type: "folder" }).token;
  const made = await textOf("create_folder", { name: "Reports", folder });
  const token = /token (\w+)/.exec(made)?.[1] ?? "";
  await textOf("upload_text_file", { name: "data.csv", text: "a,b\n1,夜", folder: token });
  const plan = docs.addDocument({ owner: ann, title: "Plan", markdown: "# Goals" }).documentId;
  const copied = await textOf("copy_file", {
    token: plan,
    type: "docx",
    name: "Plan 2",
    folder: token,
  });
  const copy = /token (\w+)/.exec(copied)?.[1] ?? "";
  expect(docs.markdown(copy)).toBe("# Goals");
  const move = { token: plan, type: "docx", name: "Plan", folder: token };
  expect(await call("move_file", { ...move, folder_name: "Other" })).toMatchObject({
    ok: false,
    error: expect.stringContaining('is "Reports"'),
  });
  await textOf("move_file", { ...move, folder_name: "Reports" });
  const listed = await textOf("list_drive_files", { folder: token });
  for (const name of ["data.csv (file,", "Plan 2 (docx,", "Plan (docx,"]) {
    expect(listed).toContain(`- ${name}`);
  }
  expect([...drive.files.values()].find(({ name }) => name === "data.csv")?.text).toBe("a,b\n1,夜");
});

it("deletes only what has the name that the person saw", async () => {
  const { platform, call, ann } = await toolWorld();
  const { token } = platform.work.drive.addFile({ owner: ann, name: "Notes.md" });
  const wrong = await call("delete_drive_file", { token, type: "file", name: "Old notes.md" });
  expect(wrong).toMatchObject({
    ok: false,
    error: 'Nothing was done: the name of this file is "Notes.md".',
  });
  expect(platform.work.drive.files.has(token)).toBe(true);
  expect(await call("delete_drive_file", { token, type: "file", name: "Notes.md" })).toMatchObject({
    ok: true,
  });
  expect(platform.work.drive.files.has(token)).toBe(false);
});

it("changes nothing that belongs to others", async () => {
  const { platform, call, ann, bob } = await toolWorld();
  const { token } = platform.work.drive.addFile({ owner: ann, name: "Notes.md" });
  platform.work.share(token, bob, "view");
  const as = { person: bob };
  expect(
    await call("delete_drive_file", { token, type: "file", name: "Notes.md" }, as),
  ).toMatchObject({
    ok: false,
    error: expect.stringContaining("code 1061004") as string,
  });
  expect(platform.work.changes).toEqual([]);
});

it("waits for the drive's lock, and makes one change at a time", async () => {
  const { platform, call } = await toolWorld();
  platform.work.drive.lockDrive(2);
  const names = ["a.md", "b.md", "c.md"];
  const outcomes = await Promise.all(
    names.map((name) => call("upload_text_file", { name, text: name })),
  );
  expect(outcomes.map(({ ok }) => ok)).toEqual([true, true, true]);
  expect(platform.work.drive.files.size).toBe(3);
  const uploads = platform.apiCalls.filter(({ path }) => path.endsWith("upload_all"));
  expect(uploads.map(({ code }) => code)).toEqual([1061045, 1061045, 0, 0, 0]);
});
