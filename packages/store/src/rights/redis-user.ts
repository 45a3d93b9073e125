import type { ChannelFamily, KeyFamily, Place } from "./key-families.ts";

/** What a user may do with some kinds of keys: commands of Redis, separated by blanks. */
export interface Grant {
  keys: readonly KeyFamily[];
  commands: string;
}

/** One user of Redis: everything that is not named here is refused. */
export interface RedisUser {
  name: string;
  place: Place;
  /** Commands that name neither key nor channel. */
  commands: string;
  /** Whether it calls scripts; what they do is checked command by command, as if the user did it. */
  runsScripts: boolean;
  grants: readonly Grant[];
  publishes?: readonly ChannelFamily[];
  subscribes?: readonly ChannelFamily[];
  /** Whether others see by a subscription that its process lives. Default: no. */
  isPresent?: boolean;
}
