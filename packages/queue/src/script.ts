import { scriptsBeside } from "@larkline/protocol/lua";

export { runScript, type Script } from "@larkline/protocol/lua";

/** Reads lua/<name>.lua. */
export const script = scriptsBeside(import.meta.url);
