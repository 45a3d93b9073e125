import { argv, env } from "node:process";
import { tokenDigestOf } from "@larkline/protocol/tool";
import { defineTool } from "@larkline/tool-kit";

/** Says as whom it acts, and whether its process shows the token where others can read it. */
export default defineTool({
  name: "whoami",
  description: "d",
  input: { type: "object" },
  effect: "pure",
  as: "person",
  scopes: ["task:task:read"],
  run: (_input, { identity }) => ({
    as: identity?.as,
    openId: identity?.openId,
    digest: tokenDigestOf(identity?.token ?? ""),
    isShown: JSON.stringify([argv, env]).includes(identity?.token ?? ""),
  }),
});
