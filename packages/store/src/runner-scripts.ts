import { handInLua } from "./handoff.ts";
import { serverClock } from "./script.ts";
import { announceLua, withdrawLua } from "./runner-directory.ts";

/** A script as a runner in another language calls it. */
export interface PublishedScript {
  /** Names of its keys, in order. */
  keys: string[];
  /** Names of its arguments, in order. */
  arguments: string[];
  lua: string;
}

const signature = /^-- KEYS ([^|\n]+) \| ARGV ([^\n]+)$/m;

function published(lua: string): PublishedScript {
  const [, keys = "", args = ""] = signature.exec(lua) ?? [];
  return { keys: keys.split(" "), arguments: args.split(" "), lua: `${serverClock}${lua.trim()}` };
}

/** The scripts of the tool protocol, by name. */
export function runnerScripts(): Record<string, PublishedScript> {
  return {
    announce: published(announceLua),
    withdraw: published(withdrawLua),
    hand_in: published(handInLua),
  };
}
