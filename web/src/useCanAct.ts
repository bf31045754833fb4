import { useQuery } from "@tanstack/react-query";
import { healthQuery } from "@/api";

/** Whether the reader may change anything. False until the role is known: buttons appear, and never disappear. */
export function useCanAct(): boolean {
  const role = useQuery(healthQuery).data?.role;
  return role === "operator" || role === "admin";
}
