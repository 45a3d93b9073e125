import { expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

it("shares a page with a person and a group, shows who has access, and takes it away", async () => {
  const { platform, textOf, call, ann, bob } = await toolWorld();
  const { docs } = platform.work;
  const { documentId } = docs.addDocument({ owner: ann, title: "Plan", markdown: "Goals" });
  const { chatId } = platform.addChat({ type: "group", name: "Team", members: [ann, bob] });
  const file = `https://acme.feishu.cn/docx/${documentId}`;
  const reads = async () => (await call("read_document", { document: file }, { person: bob })).ok;
  const withBob = { file, name: "Plan", with: bob, with_name: "Bob" };
  const withTeam = { file, name: "Plan", with: chatId, with_name: "Team" };
  expect(await reads()).toBe(false);
  expect(await textOf("share_file", { ...withTeam, permission: "view" })).toBe(
    'Team may read "Plan" now.',
  );
  expect(await reads()).toBe(true);
  await textOf("share_file", { ...withBob, permission: "edit" });
  expect(await textOf("share_file", { ...withBob, permission: "edit" })).toBe(
    "Bob has this right already; nothing was changed.",
  );
  const listed = await textOf("list_access", { file });
  for (const line of [
    `- Ann (${ann}) may do everything`,
    `- Bob (${bob}) may edit`,
    `- Team (${chatId}) may read`,
  ]) {
    expect(listed).toContain(line);
  }
  await textOf("unshare_file", withTeam);
  await textOf("unshare_file", withBob);
  expect(await reads()).toBe(false);
  expect(platform.work.changes.map(({ content }) => content)).toEqual([
    "Plan Team view",
    "Plan Bob edit",
    "Plan Team",
    "Plan Bob",
  ]);
});

it("shares nothing under another name than the card showed, nothing that the person may only edit", async () => {
  const { platform, call, ann, bob } = await toolWorld();
  const { documentId } = platform.work.docs.addDocument({
    owner: ann,
    title: "Salaries",
    markdown: "x",
  });
  const given = { type: "docx", with: bob, with_name: "Bob", permission: "view" };
  const sharing = { file: documentId, name: "Plan", ...given };
  expect(await call("share_file", sharing)).toMatchObject({
    ok: false,
    error: 'Nothing was done: the name of this file is "Salaries".',
  });
  expect(
    await call("share_file", { ...sharing, name: "Salaries", with_name: "Ann" }),
  ).toMatchObject({ ok: false, error: expect.stringContaining('is "Bob", not "Ann"') as string });
  platform.work.share(documentId, bob, "edit");
  expect(
    await call(
      "share_file",
      { ...sharing, name: "Salaries", with: ann, with_name: "Ann" },
      {
        person: bob,
      },
    ),
  ).toMatchObject({
    ok: false,
    error: expect.stringContaining("The person may not share this") as string,
  });
  expect(platform.work.changes).toEqual([]);
});

it("shares one page of a wiki, and not those below it", async () => {
  const { platform, textOf, ann, bob } = await toolWorld();
  const { docs } = platform.work;
  const { spaceId } = docs.addSpace({ name: "Team", members: [ann] });
  const { documentId } = docs.addDocument({ owner: ann, title: "Handbook", markdown: "x" });
  const { nodeToken } = docs.addNode({ spaceId, documentId });
  const below = docs.addDocument({ owner: ann, title: "Travel", markdown: "x" }).documentId;
  docs.addNode({ spaceId, documentId: below, parent: nodeToken });
  const file = `https://acme.feishu.cn/wiki/${nodeToken}`;
  await textOf("share_file", {
    file,
    name: "Handbook",
    with: bob,
    with_name: "Bob",
    permission: "view",
  });
  expect([documentId, below].map((id) => platform.work.may(bob, id))).toEqual([true, false]);
});
