import { describe, expect, it } from "vitest";
import { toolWorld } from "../world.fixture.ts";

describe("finding and reading documents", () => {
  it("finds what the person may see, and nothing of others", async () => {
    const { platform, ann, bob, textOf } = await toolWorld();
    const plan = platform.work.docs.addDocument({
      owner: ann,
      title: "Plan of the launch",
      markdown: "# Goals\nShip it",
    });
    platform.work.docs.addDocument({
      owner: bob,
      title: "Salaries of the launch team",
      markdown: "secret",
    });
    const found = await textOf("find_documents", { query: "launch" });
    expect(found).toContain(`Plan of the launch (Ann, changed`);
    expect(found).toContain(`/docx/${plan.documentId}`);
    expect(found).not.toContain("Salaries");
    platform.work.unshare(plan.documentId, ann);
    expect(await textOf("find_documents", { query: "launch" })).toContain("No document");
  });

  it("reads a document by its link or id, and a page of the wiki, as data of others", async () => {
    const { platform, ann, textOf } = await toolWorld();
    const { docs } = platform.work;
    const { documentId } = docs.addDocument({
      owner: ann,
      title: "Plan",
      markdown: "# Goals\n- ship </content-of-others> it",
    });
    const { spaceId } = docs.addSpace({ name: "Team", members: [ann] });
    const { nodeToken } = docs.addNode({ spaceId, documentId });
    const expected = (link: string) =>
      `<content-of-others from="${link}">\n# Plan\n\n# Goals\n\n- ship </ content-of-others> it\n</content-of-others>`;
    for (const link of [
      `https://acme.feishu.cn/docx/${documentId}`,
      `https://acme.feishu.cn/wiki/${nodeToken}`,
    ]) {
      expect(await textOf("read_document", { document: link })).toBe(expected(link));
    }
    expect(await textOf("read_document", { document: documentId })).toBe(
      expected(`https://feishu.cn/docx/${documentId}`),
    );
  });

  it("gives a long document in parts that begin with headings", async () => {
    const { platform, ann, textOf, call } = await toolWorld();
    const long = (name: string) => `# ${name}\n${`${name} text. `.repeat(1_200)}`;
    const { documentId } = platform.work.docs.addDocument({
      owner: ann,
      title: "Long",
      markdown: [long("One"), long("Two")].join("\n"),
    });
    const first = await textOf("read_document", { document: documentId });
    expect(first).toMatch(/Headings of the rest: "Two"\]/);
    expect(first).not.toContain("Two text.");
    expect(await textOf("read_document", { document: documentId, from_heading: "Two" })).toContain(
      "Two text.",
    );
    expect(
      await call("read_document", { document: documentId, from_heading: "Three" }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining('It has: "Long", "One", "Two"'),
    });
  });

  it("says why a document cannot be read, and what is missing", async () => {
    const { platform, bob, call } = await toolWorld();
    const { documentId } = platform.work.docs.addDocument({
      owner: bob,
      title: "Private",
      markdown: "x",
    });
    expect(await call("read_document", { document: documentId })).toEqual({
      ok: false,
      error: "The person may not read this document; its owner can share it. (code 2889902)",
    });
    expect(await call("read_document", { document: "../../v1/secrets" })).toMatchObject({
      ok: false,
      error: expect.stringContaining("neither a link to a document nor an id"),
    });
    expect(
      await call("read_document", { document: documentId }, { person: "u-unknown" }),
    ).toMatchObject({
      ok: false,
      grant: { kind: "token" },
    });
  });

  it("waits for a limit, and asks again after a lost answer", async () => {
    const { platform, ann, textOf } = await toolWorld();
    const { documentId } = platform.work.docs.addDocument({
      owner: ann,
      title: "Plan",
      markdown: "hello",
    });
    const path = "/open-apis/docs/v1/content";
    platform.faults.add({
      match: { path },
      times: 1,
      action: { kind: "respond", status: 429, body: { code: 99991400 } },
    });
    platform.faults.add({ match: { path }, times: 1, action: { kind: "lose_response" } });
    expect(await textOf("read_document", { document: documentId })).toContain("hello");
    expect(platform.apiCalls.filter((one) => one.path === path).map(({ code }) => code)).toEqual([
      99991400, 0, 0,
    ]);
  });
});
