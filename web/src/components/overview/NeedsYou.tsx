/** What waits for a person. Empty: the list at the left has the runs that wait. */
export function NeedsYou() {
  return null;
}
