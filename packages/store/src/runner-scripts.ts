import type { Script } from "@larkline/protocol/lua";
import { script } from "./script.ts";

/** A script as a runner in another language calls it. */
export type PublishedScript = Omit<Script, "name">;

function published(name: string): PublishedScript {
  const { keys, arguments: names, lua } = script(name);
  return { keys, arguments: names, lua };
}

/** The scripts of the tool protocol, by name. */
export function runnerScripts(): Record<string, PublishedScript> {
  return { announce: published("announce"), withdraw: published("withdraw"), hand_in: published("hand-in") };
}
