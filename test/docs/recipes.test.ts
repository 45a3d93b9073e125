import { resolveConfig } from "@larkline/process/config";
import { defineTool, runTool } from "@larkline/tool-kit";
import { expect, it } from "vitest";
import { textOf } from "./document.ts";

/** The value that a module of the page exports: it has no types of its own. */
function exported(code: string): unknown {
  const body = code
    .replaceAll(/^import .*$/gm, "")
    .replace(/export default define(?:Config|Tool)\(/, "return make(");
  // oxlint-disable-next-line no-new-func: the page is ours
  return new Function("make", body)((value: unknown) => value);
}

const modules = [...textOf("docs/recipes.md").matchAll(/^```ts\n\/\/ (\S+)\n([^]*?)^```$/gm)].map(
  ([, file = "", code = ""]) => ({ file, code }),
);

it.each(modules.filter(({ file }) => file === "larkline.config.ts"))(
  "a configuration of the recipes is one that processes take: $code",
  ({ code }) => {
    const resolved = resolveConfig(exported(code));
    expect(resolved.ok ? [] : resolved.error).toEqual([]);
  },
);

it("the tool of the recipes refuses what does not fit, and says what its service answered", async () => {
  const [{ code = "" } = {}] = modules.filter(({ file }) => file === "tools/refund.ts");
  const refund = defineTool(exported(code) as Parameters<typeof defineTool>[0]); // read from the page
  expect(refund).toMatchObject({ name: "refund_order", effect: "once", requiresApproval: true });
  const wrong = await runTool(refund, { argumentsText: '{"order": "7", "cents": 5}' });
  expect(wrong).toMatchObject({ ok: false, error: expect.stringContaining("order") });
});
