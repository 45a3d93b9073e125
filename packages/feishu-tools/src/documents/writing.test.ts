import { describe, expect, it } from "vitest";
import { type ToolWorld, toolWorld } from "../world.fixture.ts";

/** Texts of the changes of a kind, in their order. */
function changesOf({ platform }: ToolWorld, kind: string): string[] {
  return platform.work.changes.filter((one) => one.kind === kind).map(({ content }) => content);
}

function idIn(text: string): string {
  return /\/(?:docx|wiki)\/([\w-]+)/.exec(text)?.[1] ?? "";
}

describe("writing documents", () => {
  it("creates a document with headings, lists, code and a table, and reads the same back", async () => {
    const world = await toolWorld();
    const markdown =
      "# Goals\n\n- ship\n\n- [x] plan\n\n```\nlet a;\n```\n\n| who | what |\n| --- | --- |\n| Ann | all |";
    const id = idIn(await world.textOf("create_document", { title: "Plan", markdown }));
    expect(world.platform.work.docs.markdown(id)).toBe(markdown);
    expect(world.platform.work.docs.documents.get(id)?.owner).toBe(world.ann);
  });

  it("makes links of pictures, and leaves code as it is", async () => {
    const world = await toolWorld();
    const markdown = "![A map](https://a.example/map.png)\n\n```\n![x](y)\n```";
    const id = idIn(await world.textOf("create_document", { title: "Plan", markdown }));
    expect(world.platform.work.docs.markdown(id)).toBe(
      "[A map](https://a.example/map.png)\n\n```\n![x](y)\n```",
    );
  });

  it("adds more blocks than one call takes in order, each once", async () => {
    const world = await toolWorld();
    const { documentId } = world.platform.work.docs.addDocument({
      owner: world.ann,
      title: "Log",
      markdown: "first",
    });
    const lines = Array.from({ length: 2_100 }, (_, at) => `line ${at}`);
    await world.textOf("append_to_document", { document: documentId, markdown: lines.join("\n") });
    expect(world.platform.work.docs.markdown(documentId).split("\n\n")).toEqual([
      "first",
      ...lines,
    ]);
    expect(world.platform.apiCalls.filter(({ path }) => path.endsWith("/descendant"))).toHaveLength(
      3,
    );
  });

  it("adds behind a block, edits one and deletes another, and touches nothing else", async () => {
    const world = await toolWorld();
    const { docs } = world.platform.work;
    const { documentId: document } = docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "# One\ntwo\nthree",
    });
    const read = async () => {
      const text = await world.textOf("read_document_blocks", { document });
      const idOf = (line: string) =>
        new RegExp(`^(\\S+) \\w+: ${line}$`, "m").exec(text)?.[1] ?? "";
      return { revision: Number(/^revision (\d+)/.exec(text)?.[1]), idOf };
    };
    await world.textOf("append_to_document", {
      document,
      markdown: "one and a half",
      after_block: (await read()).idOf("One"),
    });
    const state = await read();
    const changes = [{ block: state.idOf("two"), old_text: "two", text: "2" }];
    const other = [{ ...changes[0], old_text: "three" }];
    expect(
      await world.call("edit_document", { document, revision: state.revision, changes: other }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining('says something else: "two"') as string,
    });
    await world.textOf("edit_document", { document, revision: state.revision, changes });
    // The revision that was read says what the person saw, and is not the latest any more.
    expect(
      await world.call("edit_document", { document, revision: state.revision, changes }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining("has changed meanwhile"),
    });
    const later = await read();
    const blocks = [{ id: later.idOf("three"), text: "something else" }];
    expect(
      await world.call("delete_document_blocks", { document, revision: later.revision, blocks }),
    ).toMatchObject({
      ok: false,
      error: expect.stringContaining('says something else: "three"'),
    });
    const right = [{ id: later.idOf("three"), text: "three" }];
    await world.textOf("delete_document_blocks", {
      document,
      revision: later.revision,
      blocks: right,
    });
    expect(docs.markdown(document)).toBe("# One\n\none and a half\n\n2");
  });

  it("creates a page below another one, waits for the tree's lock, and lists it", async () => {
    const world = await toolWorld();
    const { docs } = world.platform.work;
    const { spaceId } = docs.addSpace({ name: "Team", members: [world.ann] });
    docs.lockTree(2);
    const parent = await world.textOf("create_wiki_page", { space: spaceId, title: "Handbook" });
    const child = await world.textOf("create_wiki_page", {
      parent: parent.slice(9),
      title: "Travel",
      markdown: "by train",
    });
    expect(await world.textOf("browse_wiki", {})).toContain(`Team: space ${spaceId}`);
    expect(await world.textOf("browse_wiki", { page: parent.slice(9) })).toContain(
      `Travel (docx): ${child.slice(9)}`,
    );
    expect(await world.textOf("read_document", { document: child.slice(9) })).toContain("by train");
    expect(
      await world.call("browse_wiki", { space: spaceId }, { person: world.bob }),
    ).toMatchObject({ ok: false });
  });

  it("draws on a new board, and after a mistake on the one that is there", async () => {
    const world = await toolWorld();
    const { docs, boards } = world.platform.work;
    const { documentId: document, blocks } = docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "one\n\ntwo",
    });
    const after_block = blocks.get(document)?.children?.[0];
    const drawing = { document, syntax: "mermaid", after_block };
    const wrong = await world.call("draw_diagram", { ...drawing, diagram: "boxes" });
    expect(wrong).toMatchObject({
      ok: false,
      error: expect.stringMatching(
        /^An empty board is in the document \(block \w+\)\. .*check its syntax/,
      ) as string,
    });
    const board = /board: \\"(\w+)\\"/.exec(JSON.stringify(wrong))?.[1];
    await world.textOf("draw_diagram", { ...drawing, diagram: "graph TD; A-->B", board });
    const [[token, nodes] = []] = boards.boards;
    expect(docs.markdown(document)).toBe(`one\n\n[board](${token})\n\ntwo`);
    expect(nodes?.map(({ diagram }) => diagram)).toEqual(["graph TD; A-->B"]);
    const none = await world.call("draw_diagram", {
      ...drawing,
      diagram: "graph TD; A",
      board: after_block,
    });
    expect(JSON.stringify(none)).toContain("has no board");
  });

  it("answers a comment on a passage, and resolves it, when it says what the person saw", async () => {
    const world = await toolWorld();
    const { docs } = world.platform.work;
    const { documentId: document } = docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "Ship in May",
    });
    const comment = (text: string, quote?: string) =>
      docs.comment({ documentId: document, by: world.bob, text, ...(quote && { quote }) }).comment;
    const passage = comment("Too late?", "in May");
    const whole = comment("Nice");
    expect(await world.textOf("read_document_comments", { document })).toContain(
      `- comment ${passage.commentId} on "in May": ${world.bob}: Too late?\n- comment ${whole.commentId} on the whole document: ${world.bob}: Nice`,
    );
    const answer = { document, comment: passage.commentId, comment_text: "Too late?" };
    await world.textOf("reply_to_comment", { ...answer, text: "June, then." });
    expect(passage.replies.map(({ by, text }) => [by, text])).toEqual([
      [world.bob, "Too late?"],
      [world.ann, "June, then."],
    ]);
    const others = { ...answer, comment_text: "Great" };
    for (const [tool, input, says] of [
      ["reply_to_comment", { ...others, text: "x" }, 'says something else: \\"Too late?\\"'],
      ["resolve_comment", others, 'says something else: \\"Too late?\\"'],
      [
        "reply_to_comment",
        { document, comment: whole.commentId, comment_text: "Nice", text: "x" },
        "takes no answers: use comment_on_document",
      ],
    ] as const) {
      expect(JSON.stringify(await world.call(tool, input))).toContain(says);
    }
    await world.textOf("resolve_comment", answer);
    expect(docs.documents.get(document)?.comments.map(({ solved }) => solved)).toEqual([
      true,
      false,
    ]);
    expect(JSON.stringify(await world.call("resolve_comment", answer))).toContain(
      "no such open comment",
    );
  });

  it("comments once, in the name of the person", async () => {
    const world = await toolWorld();
    const { documentId: document } = world.platform.work.docs.addDocument({
      owner: world.ann,
      title: "Plan",
      markdown: "x",
    });
    world.platform.faults.add({
      match: { method: "POST", path: /comments$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await world.textOf("comment_on_document", { document, text: "Why?" });
    expect(changesOf(world, "document.comment")).toEqual(["Why?"]);
    expect(await world.textOf("read_document_comments", { document })).toContain(
      `${world.ann}: Why?`,
    );
  });
});

describe("a lost answer", () => {
  const text = Array.from({ length: 1_500 }, (_, at) => `line ${at}`).join("\n");

  it.each(["same_result", "conflict"] as const)(
    "of any piece leaves each block there once (%s)",
    async (repeated) => {
      const world = await toolWorld();
      world.platform.work.setRepeatedKey(repeated);
      const { documentId } = world.platform.work.docs.addDocument({
        owner: world.ann,
        title: "Log",
        markdown: "",
      });
      world.platform.faults.add({
        match: { path: /descendant$/ },
        times: 3,
        action: { kind: "lose_response" },
      });
      await world.textOf("append_to_document", { document: documentId, markdown: text });
      expect(world.platform.work.docs.markdown(documentId).split("\n\n")).toEqual(text.split("\n"));
    },
  );

  it("before the write took effect is repeated under the same key", async () => {
    const world = await toolWorld();
    const { documentId } = world.platform.work.docs.addDocument({
      owner: world.ann,
      title: "Log",
      markdown: "",
    });
    world.platform.faults.add({
      match: { path: /descendant$/ },
      times: 2,
      action: { kind: "drop" },
    });
    await world.textOf("append_to_document", { document: documentId, markdown: "once" });
    expect(changesOf(world, "document.block")).toEqual(["once"]);
  });

  it("outside of the window of the key is left open, not repeated", async () => {
    const world = await toolWorld({ settings: { keyWindowMs: 0 } });
    const { documentId } = world.platform.work.docs.addDocument({
      owner: world.ann,
      title: "Log",
      markdown: "",
    });
    world.platform.faults.add({
      match: { path: /descendant$/ },
      times: 1,
      action: { kind: "drop" },
    });
    const outcome = await world.call("append_to_document", {
      document: documentId,
      markdown: "once",
    });
    expect(outcome).toMatchObject({ ok: false, unknown: true });
    expect(changesOf(world, "document.block")).toEqual([]);
  });

  it("of a creation finds the document; one that cannot be found is left open", async () => {
    const world = await toolWorld();
    const path = /\/docx\/v1\/documents$/;
    world.platform.faults.add({
      match: { method: "POST", path },
      times: 1,
      action: { kind: "lose_response" },
    });
    await world.textOf("create_document", { title: "Plan", markdown: "here" });
    world.platform.faults.add({
      match: { method: "POST", path },
      times: 1,
      action: { kind: "drop" },
    });
    expect(await world.call("create_document", { title: "Other" })).toMatchObject({
      ok: false,
      unknown: true,
      error: expect.stringContaining('whether the document "Other" was created'),
    });
    expect(changesOf(world, "document.create")).toEqual(["Plan"]);
    expect(changesOf(world, "document.block")).toEqual(["here"]);
  });
});
