import { expect, test } from "vitest";
import { apiTools } from "./api.ts";
import { decisionTools } from "./approvals.ts";
import { feishuTools } from "./index.ts";
import { toolWorld } from "./world.fixture.ts";

test("what leaves in the person's name or cannot be undone asks each time, and loudly", () => {
  const tools = [...feishuTools(), ...decisionTools(), ...apiTools()];
  const loud = tools.filter(({ risk }) => risk === "high");
  expect(loud.map(({ name }) => name)).toEqual([
    "delete_document_blocks",
    "delete_records",
    "create_event",
    "change_event",
    "cancel_event",
    "answer_invitation",
    "send_as_person",
    "delete_file",
    "send_mail",
    "decide_approval",
    "feishu_api",
  ]);
  for (const { name, requiresApproval, summary } of loud) {
    expect({ name, requiresApproval, summary }).toMatchObject({
      requiresApproval: true,
      summary: { zh: expect.any(String) as string, en: expect.any(String) as string },
    });
  }
  // What only reads never asks; what others see does.
  const asked = tools.filter(({ requiresApproval }) => requiresApproval);
  expect(asked.filter(({ effect }) => effect === "pure")).toEqual([]);
  const unasked = tools.filter((tool) => !tool.requiresApproval && tool.effect !== "pure");
  expect(unasked.map(({ name }) => name)).toEqual([
    "create_document",
    "create_folder",
    "upload_text_file",
    "copy_file",
    "draft_mail",
  ]);
});

test("what a card cannot show whole is not done", async () => {
  const { platform, ann, call } = await toolWorld();
  const text = "x".repeat(4_000);
  const { documentId, revision, blocks } = platform.work.docs.addDocument({
    owner: ann,
    title: "Plan",
    markdown: text,
  });
  const id = blocks.get(documentId)?.children?.[0];
  const outcome = await call("delete_document_blocks", {
    document: documentId,
    revision,
    blocks: [{ id, text }],
  });
  expect(outcome).toMatchObject({ ok: false });
  expect(JSON.stringify(outcome)).toContain("too much for the card");
  expect(platform.work.changes).toEqual([]);
});
