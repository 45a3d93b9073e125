import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import { describe, expect, it } from "vitest";
import { renderCard, type RenderedCard } from "./card.ts";
import { operationsBetween, shownOf } from "../reply/reply-cards.ts";
import { viewOf } from "./streams.fixture.ts";

const stop = { session: "s", turnId: "s-1" };
const tool: ShownTool = { id: "a", name: "sum", state: "running", startedAtMs: 0 };

function rendered(more: Partial<ReplyView>): RenderedCard {
  return renderCard(viewOf(more.answer ?? "", more), { cuts: [], number: 0 }, { streaming: true });
}

function operations(before: Partial<ReplyView>, after: Partial<ReplyView>): unknown[] {
  return operationsBetween(shownOf(rendered(before)), rendered(after));
}

/** What the body shows after a batch, by ids. */
function idsAfter(before: Partial<ReplyView>, after: Partial<ReplyView>): string[] {
  let ids = ["thinking", "tools", "answer", "stop", "footer"].filter(
    (id) => id === "answer" || id in rendered(before).parts,
  );
  for (const operation of operationsBetween(shownOf(rendered(before)), rendered(after))) {
    if (operation.kind === "content") continue;
    for (const { action, params } of operation.actions) {
      if (action === "delete_elements") {
        ids = ids.filter((id) => !JSON.stringify(params).includes(`"${id}"`));
      }
      if (action !== "add_elements") continue;
      const at = ids.indexOf(String(params["target_element_id"]));
      expect(at).not.toBe(-1);
      const added = /"element_id":"(\w+)"/.exec(JSON.stringify(params["elements"]))?.[1] ?? "";
      ids.splice(params["type"] === "insert_before" ? at : at + 1, 0, added);
    }
  }
  return ids;
}

describe("the operations between two states of a card", () => {
  it("are none when nothing changed", () => {
    expect(
      operations({ answer: "a", tools: [tool], stop }, { answer: "a", tools: [tool], stop }),
    ).toEqual([]);
  });

  it("are one content update when only the answer grew", () => {
    expect(operations({ answer: "a", stop }, { answer: "ab", stop })).toEqual([
      { kind: "content", elementId: "answer", content: "ab" },
    ]);
  });

  it("change the text of the thinking without its panel", () => {
    expect(operations({ thinking: "a" }, { thinking: "ab" })).toEqual([
      {
        kind: "batch",
        actions: [
          {
            action: "partial_update_element",
            params: { element_id: "thinking_text", partial_element: { content: "ab" } },
          },
        ],
      },
    ]);
  });

  it("change the title of the calls without the calls", () => {
    const later = { ...tool, elapsedMs: 2_000 };
    const found = operations({ tools: [tool] }, { tools: [later] });
    const header = rendered({ tools: [later] }).parts["tools"]?.["header"];
    expect(found).toEqual([
      {
        kind: "batch",
        actions: [
          {
            action: "partial_update_element",
            params: { element_id: "tools", partial_element: { header } },
          },
        ],
      },
    ]);
    const { tools_calls: _new, ...before } = shownOf(rendered({ tools: [tool] })).parts;
    expect(
      operationsBetween({ answer: "…", parts: before }, rendered({ tools: [later] })),
    ).toMatchObject([{ actions: [{ action: "update_element" }] }]);
  });

  it("put everything but the answer into one batch, before the answer", () => {
    const found = operations(
      { tools: [tool], stop, answer: "a" },
      { tools: [{ ...tool, state: "done" }], footer: { model: "m" }, thinking: "t", answer: "ab" },
    );
    expect(found).toMatchObject([
      {
        kind: "batch",
        actions: [
          { action: "delete_elements", params: { element_ids: ["stop"] } },
          { action: "update_element", params: { element_id: "tools" } },
          { action: "add_elements", params: { type: "insert_before", target_element_id: "tools" } },
          { action: "add_elements", params: { type: "insert_after", target_element_id: "answer" } },
        ],
      },
      { kind: "content", elementId: "answer", content: "ab" },
    ]);
  });

  it("lead from any set of sections to any other, in the order of the body", () => {
    const sections: Partial<ReplyView>[] = [
      { thinking: "t" },
      { tools: [tool] },
      { stop },
      { footer: { model: "m" } },
    ];
    const views = Array.from({ length: 16 }, (_, bits) =>
      Object.assign({}, ...sections.filter((_section, index) => (bits >> index) & 1)),
    );
    for (const before of views) {
      for (const after of views) expect(idsAfter(before, after)).toEqual(idsAfter(after, after));
    }
  });
});
