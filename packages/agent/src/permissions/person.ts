import type { Deciders } from "@larkline/protocol";
import type { Person, RoleMembers } from "./policy.ts";

/** The roles of a configuration, by name. */
export type Roles = Readonly<Record<string, RoleMembers>>;

/** Whether the person has one of the roles, by themselves or through a group. Unknown roles have nobody. */
export function hasRole(person: Person, names: readonly string[], roles: Roles): boolean {
  return names.some((name) => {
    const members = Object.hasOwn(roles, name) ? roles[name] : undefined;
    return (
      members !== undefined &&
      (members.people.includes(person.id) || members.groups.some((group) => person.groups.includes(group)))
    );
  });
}

/** Whether a requester's own approval counts. */
export function requesterApproves({ requester, fourEyes }: Deciders): boolean {
  return requester && !fourEyes;
}
